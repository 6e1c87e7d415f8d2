"""Forks as clients ask for them and get them."""

from pydantic import Field

from ingress.admission.json_body import JsonBody
from ingress.admission.lines import Line

TURN_EXAMPLE = "turn_01890a5d-ac96-774b-bcce-b302099a8057"


class ForkIn(JsonBody):
    """Up to the end of which turn, the last ended one without; and the title, that of the original without."""

    turn_id: str | None = Field(default=None, max_length=80, examples=[TURN_EXAMPLE])
    title: Line | None = Field(default=None, examples=["Another way"])


class ForkOut(JsonBody):
    """The new conversation, and what it was copied from: `turn_id` is the original's last turn in it."""

    conversation_id: str
    forked_from: str
    turn_id: str
    turns: int
    blocks: int
