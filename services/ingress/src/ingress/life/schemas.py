"""Forks as clients ask for them and get them."""

from pydantic import Field

from ingress.admission.json_body import JsonBody
from ingress.admission.lines import Line

TURN_EXAMPLE = "turn_01890a5d-ac96-774b-bcce-b302099a8057"


class ForkIn(JsonBody):
    """The last turn to copy (default: the last one that has ended), and the title (default: the original's)."""

    turn_id: str | None = Field(default=None, max_length=80, examples=[TURN_EXAMPLE])
    title: Line | None = Field(default=None, examples=["Another way"])


class ForkOut(JsonBody):
    """The new conversation and its origin: `turn_id` is the last turn of the original that was copied."""

    conversation_id: str
    forked_from: str
    turn_id: str
    turns: int
    blocks: int
