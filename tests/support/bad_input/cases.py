"""The shape of all tables, and the ids that they share."""

from dataclasses import dataclass

BASE = "/conversations/default/default"
UUID = "01890a5d-ac96-774b-bcce-b302099a8057"
CONVERSATION, TURN, SIGNAL, ARTIFACT = f"conv_{UUID}", f"turn_{UUID}", f"sig_{UUID}", f"art_{UUID}"
"""Ids of the right form that nothing has."""


@dataclass(frozen=True)
class Refusal:
    """The expected answer to a case: the status and the last part of the problem's type."""

    status: int
    kind: str


MALFORMED = Refusal(400, "malformed")
FORBIDDEN = Refusal(403, "forbidden")
ABSENT = Refusal(404, "not-found")
NOT_ALLOWED = Refusal(405, "method-not-allowed")
CONFLICT = Refusal(409, "conflict")
TOO_LARGE = Refusal(413, "too-large")
UNSUPPORTED = Refusal(415, "unsupported-type")
UNPROCESSABLE = Refusal(422, "unprocessable")
HEADERS_TOO_LARGE = Refusal(431, "headers-too-large")
