"""What the readers of replies return while a reply is written."""

from dataclasses import dataclass
from typing import Literal

from chat_proc.channels.parser import ChannelClosed, ChannelOpened


@dataclass(frozen=True, slots=True)
class ThinkingText:
    """The next piece of what the model thinks."""

    text: str
    instance: int


@dataclass(frozen=True, slots=True)
class NotesText:
    """The next piece of an action's notes."""

    text: str
    instance: int


@dataclass(frozen=True, slots=True)
class AnswerText:
    """The next piece of the final answer as shown, with citations replaced."""

    text: str
    instance: int


@dataclass(frozen=True, slots=True)
class AnswerWithdrawn:
    """What was streamed as the answer so far is not an answer, because the reply goes on with an action, or the JSON
    that it was read from is broken."""


@dataclass(frozen=True, slots=True)
class CodeText:
    """The next piece of a program, exactly as written."""

    text: str
    instance: int


@dataclass(frozen=True, slots=True)
class ContentText:
    """The next piece of a long text parameter, `param`. The other fields are what the action has stated so far, or
    None."""

    text: str
    instance: int
    param: str
    tool_id: str | None
    path: str | None
    channel: str | None
    kind: str | None


@dataclass(frozen=True, slots=True)
class FieldClosed:
    """A streamed field with text has ended; `complete` is false if the action broke off inside it."""

    field: Literal["notes", "answer", "content"]
    instance: int
    complete: bool


DecisionPiece = (
    ThinkingText
    | NotesText
    | AnswerText
    | AnswerWithdrawn
    | CodeText
    | ContentText
    | FieldClosed
    | ChannelOpened
    | ChannelClosed
)
