"""Reads one action while it is written: pieces to show, and the action at its end."""

from collections.abc import Mapping
from types import MappingProxyType

from chat_proc.channels.actions import (
    ACTION_PATH,
    ANSWER_PATH,
    FINAL_KINDS,
    FORM_PROBLEMS,
    NOTES_PATH,
    PARAMS_PATH,
    TOOL_PATH,
    UNREADABLE,
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
from chat_proc.channels.pieces import ContentText, DecisionPiece, FieldClosed, NotesText
from chat_proc.channels.reply_parts import MAX_KNOWN_CHARS, AnswerField, CallFields


class ActionStream:
    """One action channel. Its answer is streamed once the action is known to be final, and only if `cite` is given.
    `names` are those of `json_actions`."""

    def __init__(
        self, instance: int, cite: CitationReplacer | None, names: Mapping[str, str] = MappingProxyType({})
    ) -> None:
        self._instance = instance
        self._names = names
        self._reader = ActionReader()
        self._call = CallFields(instance)
        self._answer = AnswerField(cite, instance) if cite is not None else None
        self._known: dict[Path, str] = {}
        self._ended: set[Path] = set()
        self._has_notes = False
        self._is_broken = False

    @property
    def is_broken(self) -> bool:
        """Whether the object is invalid, and not because the text ended inside it. Known once the channel has ended."""
        return self._is_broken

    @property
    def answer(self) -> StreamedAnswer | None:
        """The streamed part of the answer; None before its first character."""
        return self._answer.answer if self._answer is not None else None

    @property
    def head(self) -> ActionHead | None:
        """Whether the action is final or which tool it calls; None until that is written."""
        kind = self._known.get(ACTION_PATH) if ACTION_PATH in self._ended else None
        if kind in FINAL_KINDS:
            return ActionHead(None)
        if kind == "call_tool" and TOOL_PATH in self._ended:
            return ActionHead(self._known.get(TOOL_PATH, ""))
        return None

    def feed(self, text: str) -> list[DecisionPiece]:
        """Return the pieces that `text` adds."""
        return [shown for piece in self._reader.feed(text) for shown in self._read(piece)]

    def finish(self) -> tuple[list[DecisionPiece], Action | ActionRefusal]:
        """End the channel. A valid object, alone or in a list, can be an action in another form."""
        ended = self._reader.is_over
        pieces, action = self._reader.finish()
        if isinstance(action, ActionRefusal):
            self._is_broken = ended and action.kind in UNREADABLE
            others = find_json_actions(self._reader.text, self._names) if action.kind in FORM_PROBLEMS else ()
            action = others[0] if len(others) == 1 else action
        return [shown for piece in pieces for shown in self._read(piece)], action

    def _read(self, piece: FieldPiece) -> list[DecisionPiece]:
        if piece.path[:-1] == PARAMS_PATH:
            return self._call.read(piece)
        return self._grow(piece.path, piece.text) if isinstance(piece, FieldText) else self._end(piece)

    def _grow(self, path: Path, text: str) -> list[DecisionPiece]:
        if path == ANSWER_PATH:
            return self._answer.feed(text) if self._answer is not None else []
        if path == NOTES_PATH:
            self._has_notes = True
            return [NotesText(text, self._instance)]
        self._known[path] = (self._known.get(path, "") + text)[:MAX_KNOWN_CHARS]
        if path == TOOL_PATH:
            self._call.tool_id = self._known[path]
        return []

    def _end(self, end: FieldEnd) -> list[DecisionPiece]:
        if end.complete:
            self._ended.add(end.path)
        if end.path == NOTES_PATH and self._has_notes:
            return [FieldClosed("notes", self._instance, end.complete)]
        if self._answer is None:
            return []
        if end.path == ANSWER_PATH:
            return self._answer.end(complete=end.complete)
        is_final = end.path == ACTION_PATH and self.head is not None and self.head.is_final
        return self._answer.release() if is_final else []


class GatedAction:
    """The gate of one action while it is written: its texts are shown only once the judge has accepted it. An action in
    another form than that of a channel is judged at its end.

    Used like an ActionStream. The first action follows no other, so its notes need not wait for its tool.
    """

    def __init__(self, stream: ActionStream, judge: ActionJudge) -> None:
        self._stream = stream
        self._judge = judge
        self._waits = judge.passed > 0
        self._is_judged = False
        self._has_path: bool | None = None
        self._refusal: ActionRefusal | None = None
        self._held: list[DecisionPiece] = []

    @property
    def is_broken(self) -> bool:
        """Whether the object is invalid."""
        return self._stream.is_broken

    @property
    def answer(self) -> StreamedAnswer | None:
        """The streamed part of the answer."""
        return self._stream.answer if self._is_judged and self._refusal is None else None

    def feed(self, text: str) -> list[DecisionPiece]:
        """Return the pieces that may be shown now."""
        return self._let_pass(self._stream.feed(text))

    def finish(self) -> tuple[list[DecisionPiece], Action | ActionRefusal]:
        """End the channel. An action that was not accepted is a refusal, even if it is valid."""
        pieces, reading = self._stream.finish()
        if self._stream.head is None and isinstance(reading, Action):
            self._judge_head(reading.head)
        shown = self._let_pass(pieces)
        return shown, reading if self._refusal is None or isinstance(reading, ActionRefusal) else self._refusal

    def _let_pass(self, pieces: list[DecisionPiece]) -> list[DecisionPiece]:
        if not self._is_judged and self._stream.head is not None:
            self._judge_head(self._stream.head)
        if self._refusal is not None:
            return []
        if self._waits and not self._is_judged:
            self._held += pieces
            return []
        passing, self._held = [*self._held, *pieces], []
        return [piece for piece in passing if self._may_show(piece, self._stream.head)]

    def _judge_head(self, head: ActionHead) -> None:
        self._is_judged = True
        self._refusal = self._judge.judge(head)

    def _may_show(self, piece: DecisionPiece, head: ActionHead | None) -> bool:
        if not isinstance(piece, ContentText):
            return True
        if self._has_path is None:
            self._has_path = piece.path is not None
            if piece.path is not None and head is not None:
                self._refusal = self._judge.claim_path(head.tool_id, piece.path)
        return self._has_path and self._refusal is None
