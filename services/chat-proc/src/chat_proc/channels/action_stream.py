"""Turns one action channel into what can be shown while it is written: notes, the cited answer, and written content."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, assert_never

from chat_proc.channels.actions import (
    ACTION_PATH,
    ANSWER_PATH,
    NOTES_PATH,
    PARAMS_PATH,
    TOOL_PATH,
    ActionReader,
    ActionRefusal,
)
from chat_proc.channels.citations import CitationReplacer
from chat_proc.channels.jsontext.fields import FieldEnd, FieldPiece, FieldText, Path
from everturn.model.decisions import Action, StreamedAnswer

CONTENT_PARAMS = frozenset({"content", "patch", "replacement"})
_FINAL_KINDS = frozenset({"complete", "exit"})
_MAX_KNOWN_CHARS = 1_000


@dataclass(frozen=True, slots=True)
class NotesText:
    """More of an action's notes."""

    text: str
    instance: int


@dataclass(frozen=True, slots=True)
class AnswerText:
    """More of the final answer as it is to be shown: citations are replaced."""

    text: str
    instance: int


@dataclass(frozen=True, slots=True)
class ContentText:
    """More of a long text parameter, `param`. The other fields are what the action said before it; None if not yet."""

    text: str
    instance: int
    param: str
    tool_id: str | None
    path: str | None
    channel: str | None
    kind: str | None


@dataclass(frozen=True, slots=True)
class FieldClosed:
    """A streamed field that had text is over; `complete` is false if the action broke off inside it."""

    field: Literal["notes", "answer", "content"]
    instance: int
    complete: bool


ActionPiece = NotesText | AnswerText | ContentText | FieldClosed


class ActionStream:
    """One action channel. Its answer is streamed once the action is known to be final, and only if `cite` is given."""

    def __init__(self, instance: int, cite: CitationReplacer | None) -> None:
        self._instance = instance
        self._reader = ActionReader()
        self._cite = cite
        self._known: dict[Path, str] = {}
        self._begun: set[Path] = set()
        self._raw_answer: list[str] = []
        self._shown_answer: list[str] = []
        self._waiting_answer: list[str] = []
        self._answer_ended: FieldEnd | None = None

    @property
    def answer(self) -> StreamedAnswer | None:
        """The answer as far as it was handed out; None before its first character."""
        if not self._shown_answer or self._cite is None:
            return None
        return StreamedAnswer("".join(self._raw_answer), "".join(self._shown_answer), self._cite.used_sids)

    def feed(self, text: str) -> list[ActionPiece]:
        """What `text` adds."""
        fields = self._reader.feed(text)
        return [piece for field in fields for piece in self._read(field)] if fields else []

    def finish(self) -> tuple[list[ActionPiece], Action | ActionRefusal]:
        """The channel is over."""
        fields, action = self._reader.finish()
        return [piece for field in fields for piece in self._read(field)], action

    def _read(self, field: FieldPiece) -> Iterator[ActionPiece]:
        match field:
            case FieldText(path, text):
                yield from self._grow(path, text)
            case FieldEnd(path):
                yield from self._end(path, field)
            case _:
                assert_never(field)

    def _grow(self, path: Path, text: str) -> Iterator[ActionPiece]:
        if path == ANSWER_PATH:
            yield from self._show_answer(text)
        elif path == NOTES_PATH:
            self._begun.add(path)
            yield NotesText(text, self._instance)
        elif _is_content(path):
            self._begun.add(path)
            yield self._content(str(path[-1]), text)
        else:
            self._known[path] = (self._known.get(path, "") + text)[:_MAX_KNOWN_CHARS]

    def _end(self, path: Path, end: FieldEnd) -> Iterator[ActionPiece]:
        if path == ANSWER_PATH:
            self._answer_ended = end
            yield from self._end_answer()
        elif path in self._begun:
            yield FieldClosed("notes" if path == NOTES_PATH else "content", self._instance, end.complete)
        elif path == ACTION_PATH and end.complete:
            self._begun.add(path)
            yield from self._show_answer("")
            yield from self._end_answer()

    def _show_answer(self, text: str) -> Iterator[ActionPiece]:
        self._waiting_answer.append(text)
        if self._cite is None or not self._is_final():
            return
        raw = "".join(self._waiting_answer)
        self._waiting_answer.clear()
        self._raw_answer.append(raw)
        yield from self._shown(self._cite.feed(raw))

    def _end_answer(self) -> Iterator[ActionPiece]:
        if self._answer_ended is None or self._cite is None or not self._is_final():
            return
        yield from self._shown(self._cite.finish())
        if self._shown_answer:
            yield FieldClosed("answer", self._instance, self._answer_ended.complete)

    def _shown(self, text: str) -> Iterator[ActionPiece]:
        if text:
            self._shown_answer.append(text)
            yield AnswerText(text, self._instance)

    def _is_final(self) -> bool:
        return ACTION_PATH in self._begun and self._known.get(ACTION_PATH) in _FINAL_KINDS

    def _content(self, param: str, text: str) -> ContentText:
        known = self._known
        return ContentText(
            text,
            self._instance,
            param,
            tool_id=known.get(TOOL_PATH),
            path=known.get((*PARAMS_PATH, "path")),
            channel=known.get((*PARAMS_PATH, "channel")),
            kind=known.get((*PARAMS_PATH, "kind")),
        )


def _is_content(path: Path) -> bool:
    return len(path) == len(PARAMS_PATH) + 1 and path[-1] in CONTENT_PARAMS
