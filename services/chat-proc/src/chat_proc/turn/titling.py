"""The title of a conversation: from its first prompt, or from a model call that runs beside its first turn."""

from typing import Protocol

from everturn.core.refs import round_ref
from everturn.timeline.blocks import BlockDraft, BlockType
from everturn.timeline.bodies import TitleBody
from everturn.timeline.turns import Turn, TurnRequest
from everturn.turns.model import UsageEvent

TITLE_CHARS = 60
CODE_FENCE = "```"


class RunningTitleCall(Protocol):
    """A model call for the title, which may still be running when the turn ends."""

    def try_title(self) -> str | None:
        """The title; None if the reply has not arrived, or is not a title."""
        ...

    def build_usage(self) -> UsageEvent | None:
        """The cost of the call so far; None if it has none."""
        ...


def make_title(text: str) -> str:
    """A conversation's first title: the beginning of its first prompt, cut at a word and before a block of code."""
    words, _, code = text.partition(CODE_FENCE)
    line = " ".join(words.split()).rstrip(":") or " ".join(code.replace(CODE_FENCE, " ").split())
    if len(line) <= TITLE_CHARS:
        return line or "Untitled"
    return line[:TITLE_CHARS].rsplit(" ", 1)[0].rstrip(",;:.") + "…"


def title_source(request: TurnRequest) -> str:
    """The text from which a title is made: the prompt, or the text of the first event."""
    return request.text or next((event.text or event.event.kind for event in request.events), "")


def draft_gate(turn: Turn, title: str, now: str) -> BlockDraft:
    """The gate's decision at the beginning of a conversation: its title, once it is known."""
    body = TitleBody(title=title)
    return BlockDraft(turn.id, 0, BlockType.STAGE_GATE, round_ref(turn.id, 0, "title"), body, now)
