"""Reads one action while it is written: pieces to show, and the action at its end."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal, assert_never

from chat_proc.channels.actions import (
    ACTION_PATH,
    ANSWER_PATH,
    NOTES_PATH,
    PARAMS_PATH,
    TOOL_PATH,
    Action,
    ActionHead,
    ActionJudge,
    ActionReader,
    ActionRefusal,
    StreamedAnswer,
)
from chat_proc.channels.citations import CitationReplacer
from chat_proc.channels.json_actions import find_json_actions
from chat_proc.channels.json_text import FieldEnd, FieldPiece, FieldText, Path
from everturn.timeline.forms import LONG_PARAMS

_PATH_PARAM: Path = (*PARAMS_PATH, "path")
_FINAL_KINDS = frozenset({"complete", "exit"})
_MAX_KNOWN_CHARS = 1_000


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


ActionPiece = NotesText | AnswerText | ContentText | FieldClosed


class ActionStream:
    """One action channel. Its answer is streamed once the action is known to be final, and only if `cite` is given.
    `names` are those of `json_actions`."""

    def __init__(
        self, instance: int, cite: CitationReplacer | None, names: Mapping[str, str] = MappingProxyType({})
    ) -> None:
        self._instance = instance
        self._names = names
        self._reader = ActionReader()
        self._cite = cite
        self._known: dict[Path, str] = {}
        self._begun: set[Path] = set()
        self._ended: set[Path] = set()
        self._raw_answer: list[str] = []
        self._shown_answer: list[str] = []
        self._waiting_answer: list[str] = []
        self._answer_end: FieldEnd | None = None
        self._is_final = False
        self._pieces: list[ActionPiece] = []

    @property
    def answer(self) -> StreamedAnswer | None:
        """The streamed part of the answer; None before its first character."""
        if not self._shown_answer or self._cite is None:
            return None
        is_whole = self._answer_end is not None and self._answer_end.complete
        return StreamedAnswer("".join(self._raw_answer), "".join(self._shown_answer), self._cite.used_sids, is_whole)

    @property
    def head(self) -> ActionHead | None:
        """Whether the action is final or which tool it calls; None until that is written."""
        kind = self._known.get(ACTION_PATH) if ACTION_PATH in self._ended else None
        if kind in _FINAL_KINDS:
            return ActionHead(None)
        if kind == "call_tool" and TOOL_PATH in self._ended:
            return ActionHead(self._known.get(TOOL_PATH, ""))
        return None

    def feed(self, text: str) -> list[ActionPiece]:
        """Return the pieces that `text` adds."""
        for field in self._reader.feed(text):
            self._read(field)
        return self._take_pieces()

    def finish(self) -> tuple[list[ActionPiece], Action | ActionRefusal]:
        """End the channel."""
        fields, action = self._reader.finish()
        for field in fields:
            self._read(field)
        if isinstance(action, ActionRefusal) and (others := find_json_actions(self._reader.text, self._names)):
            action = others[0]
        return self._take_pieces(), action

    def _take_pieces(self) -> list[ActionPiece]:
        pieces = self._pieces
        self._pieces = []
        return pieces

    def _read(self, field: FieldPiece) -> None:
        match field:
            case FieldText():
                self._grow(field.path, field.text)
            case FieldEnd():
                self._end(field)
            case _:
                assert_never(field)

    def _grow(self, path: Path, text: str) -> None:
        if path == ANSWER_PATH:
            self._waiting_answer.append(text)
            self._show_answer()
        elif path == NOTES_PATH:
            self._begun.add(path)
            self._pieces.append(NotesText(text, self._instance))
        elif _is_content(path):
            self._begun.add(path)
            self._pieces.append(self._content(str(path[-1]), text))
        else:
            self._known[path] = (self._known.get(path, "") + text)[:_MAX_KNOWN_CHARS]

    def _end(self, end: FieldEnd) -> None:
        if end.complete:
            self._ended.add(end.path)
        if end.path == ANSWER_PATH:
            self._answer_end = end
            self._end_answer()
        elif end.path in self._begun:
            field = "notes" if end.path == NOTES_PATH else "content"
            self._pieces.append(FieldClosed(field, self._instance, end.complete))
        elif end.path == ACTION_PATH and end.complete:
            self._is_final = self._known.get(ACTION_PATH) in _FINAL_KINDS
            self._show_answer()
            self._end_answer()

    def _show_answer(self) -> None:
        """Show the waiting answer text, once its action is known to be final."""
        if self._cite is None or not self._is_final:
            return
        raw = "".join(self._waiting_answer)
        self._waiting_answer.clear()
        self._raw_answer.append(raw)
        self._show(self._cite.feed(raw))

    def _end_answer(self) -> None:
        if self._answer_end is None or self._cite is None or not self._is_final:
            return
        self._show(self._cite.finish())
        if self._shown_answer:
            self._pieces.append(FieldClosed("answer", self._instance, self._answer_end.complete))

    def _show(self, text: str) -> None:
        if text:
            self._shown_answer.append(text)
            self._pieces.append(AnswerText(text, self._instance))

    def _content(self, param: str, text: str) -> ContentText:
        known = self._known
        return ContentText(
            text,
            self._instance,
            param,
            tool_id=known.get(TOOL_PATH),
            path=known.get(_PATH_PARAM) if _PATH_PARAM in self._ended else None,
            channel=known.get((*PARAMS_PATH, "channel")),
            kind=known.get((*PARAMS_PATH, "kind")),
        )


def _is_content(path: Path) -> bool:
    return len(path) == len(PARAMS_PATH) + 1 and path[-1] in LONG_PARAMS


class GatedAction:
    """The gate of one action while it is written: its texts are shown only once the judge has accepted it.

    Used like an ActionStream. The first action follows no other, so its notes need not wait for its tool.
    """

    def __init__(self, stream: ActionStream, judge: ActionJudge) -> None:
        self._stream = stream
        self._judge = judge
        self._waits = judge.passed > 0
        self._is_judged = False
        self._has_path: bool | None = None
        self._refusal: ActionRefusal | None = None
        self._held: list[ActionPiece] = []

    @property
    def answer(self) -> StreamedAnswer | None:
        """The streamed part of the answer."""
        return self._stream.answer if self._is_judged and self._refusal is None else None

    def feed(self, text: str) -> list[ActionPiece]:
        """Return the pieces that may be shown now."""
        return self._let_pass(self._stream.feed(text))

    def finish(self) -> tuple[list[ActionPiece], Action | ActionRefusal]:
        """End the channel. An action that was not accepted is a refusal, even if it is valid."""
        pieces, reading = self._stream.finish()
        shown = self._let_pass(pieces)
        return shown, reading if self._refusal is None or isinstance(reading, ActionRefusal) else self._refusal

    def _let_pass(self, pieces: list[ActionPiece]) -> list[ActionPiece]:
        head = None if self._is_judged else self._stream.head
        if head is not None:
            self._is_judged = True
            self._refusal = self._judge.judge(head)
        if self._refusal is not None:
            return []
        if self._waits and not self._is_judged:
            self._held += pieces
            return []
        passing, self._held = [*self._held, *pieces], []
        return [piece for piece in passing if self._may_show(piece, self._stream.head)]

    def _may_show(self, piece: ActionPiece, head: ActionHead | None) -> bool:
        if not isinstance(piece, ContentText):
            return True
        if self._has_path is None:
            self._has_path = piece.path is not None
            if piece.path is not None and head is not None:
                self._refusal = self._judge.claim_path(head.tool_id, piece.path)
        return self._has_path and self._refusal is None
