"""Field types that all bodies, paths and queries share, and the problem of a value that does not fit its type."""

import re
import unicodedata
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any

from fastapi import Depends, Path
from pydantic import AfterValidator, AwareDatetime, BeforeValidator, ConfigDict, StringConstraints

from everturn.core.api_model import ApiModel
from everturn.core.ids import ArtifactId, ConversationId, SignalId, TurnId, is_id
from everturn.core.paging import MAX_CURSOR_CHARS
from ingress.errors import ProblemError, absent, malformed, unprocessable

BundleId = Annotated[str, StringConstraints(min_length=1, max_length=128, pattern=r"^[A-Za-z0-9][A-Za-z0-9._@/-]*$")]
"""The name of a bundle in request bodies."""
BUNDLE_HELP = (
    "A bundle that `GET /bundles` lists, or `default` for the default one; any other is a 422 of type "
    "`urn:everturn:problem:unknown-bundle`. Messages that name none use the one with which their conversation was "
    "created, otherwise the default one."
)

NOT_BLANK = r"\S"
"""Pattern of a text that is more than white space."""
Cursor = Annotated[str, StringConstraints(min_length=1, max_length=MAX_CURSOR_CHARS)]
"""The `next_cursor` of a page, which is opaque to clients."""

MAX_TITLE_CHARS = 300
_BAD_TEXT = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""Control characters (terminals also interpret those above 0x7f), line separators, and bidirectional overrides."""

MAX_ERRORS = 20
MAX_NAME_CHARS = 80
"""Limit for a field's name in a problem, which the client can have chosen."""
MAX_MESSAGE_CHARS = 300

_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ]")

_UUID = "01890a5d-ac96-774b-bcce-b302099a8057"


class JsonBody(ApiModel):
    """Rejects values of another type instead of converting them."""

    model_config = ConfigDict(strict=True)


def is_absent(value: object) -> bool:
    """For `exclude_if`: omits null fields."""
    return value is None


def read_line(text: str) -> str:
    """The text in NFC. Raises ValueError unless it is one line without control characters."""
    if _BAD_TEXT.search(text):
        raise ValueError("must be one line without control characters")
    line = unicodedata.normalize("NFC", text)
    if len(line) > MAX_TITLE_CHARS:
        raise ValueError(f"must have at most {MAX_TITLE_CHARS} characters")
    return line


Line = Annotated[str, StringConstraints(max_length=MAX_TITLE_CHARS), AfterValidator(read_line)]


def check_year(moment: datetime) -> datetime:
    """Reject years that a database, or a calendar in another time zone, does not support."""
    if not 1900 <= moment.year < 9000:
        raise ValueError("must be between the years 1900 and 9000")
    return moment


def check_written(value: object) -> object:
    """Reject numbers, also as text, which would be read as seconds since 1970."""
    if isinstance(value, str) and not _DATE.match(value):
        raise ValueError("must be a date and time such as 2026-03-01T00:00:00Z")
    if not isinstance(value, str | datetime):
        raise ValueError("must be a string such as 2026-03-01T00:00:00Z")
    return value


Moment = Annotated[AwareDatetime, BeforeValidator(check_written), AfterValidator(check_year)]
"""A date and time with its offset from UTC, in a year that a database supports."""


def parse_conversation_id(text: str) -> ConversationId:
    """A malformed id gets the same 404 as one of another owner."""
    return ConversationId(_checked(text, "conv"))


# Dependencies are async, because FastAPI runs each other one in a thread.
async def load_conversation_id(
    conversation_id: Annotated[str, Path(description="The conversation's id.", examples=[f"conv_{_UUID}"])],
) -> ConversationId:
    return parse_conversation_id(conversation_id)


async def load_turn_id(
    turn_id: Annotated[str, Path(description="The turn's id.", examples=[f"turn_{_UUID}"])],
) -> TurnId:
    return TurnId(_checked(turn_id, "turn"))


async def load_signal_id(
    signal_id: Annotated[str, Path(description="The signal's id.", examples=[f"sig_{_UUID}"])],
) -> SignalId:
    return SignalId(_checked(signal_id, "sig"))


async def load_artifact_id(
    artifact_id: Annotated[str, Path(description="The artifact's id.", examples=[f"art_{_UUID}"])],
) -> ArtifactId:
    return ArtifactId(_checked(artifact_id, "art"))


def _checked(text: str, prefix: str) -> str:
    if not is_id(text, prefix):
        raise absent()
    return text


ConversationPath = Annotated[ConversationId, Depends(load_conversation_id)]
TurnPath = Annotated[TurnId, Depends(load_turn_id)]
SignalPath = Annotated[SignalId, Depends(load_signal_id)]
ArtifactPath = Annotated[ArtifactId, Depends(load_artifact_id)]


def problem_of_validation(errors: Sequence[Mapping[str, Any]], root: str | None = None) -> ProblemError:
    """A 422 problem with the first errors, or 400 when the body is missing; input values are not repeated."""
    if [(error.get("type"), tuple(error.get("loc", ()))) for error in errors] == [("missing", ("body",))]:
        return malformed("The body is missing.")
    named = [
        {"field": _field(error, root), "message": _explain(error)[:MAX_MESSAGE_CHARS]} for error in errors[:MAX_ERRORS]
    ]
    first = named[0]
    return unprocessable(f"{first['field']}: {first['message']}", errors=named)


def _explain(error: Mapping[str, Any]) -> str:
    """Pydantic's message, except where it names our classes or shows a pattern that says less than a sentence."""
    match error.get("type"):
        case "model_type" | "model_attributes_type" | "dataclass_type":
            return "Input should be an object"
        case "string_pattern_mismatch":
            pattern = error.get("ctx", {}).get("pattern")
            return "Text should not be blank" if pattern == NOT_BLANK else f"Text should have the form {pattern}"
        case _:
            return str(error.get("msg", "invalid"))


def _field(error: Mapping[str, Any], root: str | None) -> str:
    places = [str(place)[:MAX_NAME_CHARS] for place in error.get("loc", ())]
    return ".".join([root, *places] if root else places) or "body"
