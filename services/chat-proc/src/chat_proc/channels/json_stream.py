"""Reads a reply that is one JSON object: pieces to show while it is written, and the `Decision` at its end.

The codec `json` is for models that can neither write channels nor make native tool calls.
"""

import re
from collections.abc import Iterable, Mapping
from types import MappingProxyType

from chat_proc.channels.actions import Action, Decision, Problem, Program
from chat_proc.channels.citations import CitationReplacer
from chat_proc.channels.decision_problems import DecisionLimits
from chat_proc.channels.json_actions import (
    ARGUMENT_KEYS,
    FINAL_KINDS,
    TOOL_KEYS,
    find_json_actions,
    read_json_action,
    read_text_before_actions,
    take_program,
)
from chat_proc.channels.json_text import FieldEnd, FieldPiece, JsonFieldReader, Path
from chat_proc.channels.other_forms import TextReply, decide_answer
from chat_proc.channels.pieces import DecisionPiece, ThinkingText
from chat_proc.channels.prose import ANSWER_KEYS, read_usable_text
from chat_proc.channels.reply_parts import (
    MAX_KNOWN_CHARS,
    AnswerField,
    CallFields,
    cite_answer,
    clean_program,
    show_whole,
)
from chat_proc.models.json_values import FENCE_START, JsonRefusal, as_object, read_json
from everturn.models.port import FinishReason
from everturn.timeline.sources import Source
from everturn.timeline.turns import CutReason

_SHAPE = '{"action": "tool_call", "tool": "...", "args": {...}} or {"action": "final_answer", "answer": "..."}'
_UNUSABLE = Problem("not_json", f"The reply is not one valid JSON object. Reply with {_SHAPE}, and nothing else.")
_CHANNEL = re.compile(r"(?<!`)<channel:", re.IGNORECASE)
_OBJECT_BEGINS = re.compile(rf"\s*+(?:{FENCE_START}\s*+)?\{{")


class JsonStream:
    """Feed it the reply, then call `finish` once. A reply looks like this, in a code fence or not:

        {"action": "tool_call", "tool": "react.read", "args": {"paths": ["fi:..."]}, "reasoning": "..."}
        {"action": "final_answer", "answer": "...", "reasoning": "..."}

    A reply that holds no object is the answer. One with text before its object is a reply with an object.
    """

    def __init__(
        self,
        *,
        names: Mapping[str, str] = MappingProxyType({}),
        sources: Iterable[Source] = (),
        limits: DecisionLimits,
    ) -> None:
        self._names = names
        self._limits = limits
        self._reply = TextReply(names, sources, limits, unusable=_UNUSABLE, wanted=f"Reply with {_SHAPE}.")
        self._fields = JsonFieldReader(_is_streamed, strings_only=True)
        self._call = CallFields(0, code_tools=limits.code_tools)
        self._answer = AnswerField(CitationReplacer(self._reply.sources))
        self._kind = ""
        self._tools: dict[str, str] = {}
        self._reasoning: list[str] = []

    @property
    def is_over(self) -> bool:
        """Whether the rest of the reply is ignored, because it is too long."""
        return self._reply.text.is_capped

    def feed(self, text: str) -> list[DecisionPiece]:
        """Return the pieces that the next text adds."""
        text = self._reply.text.take(text)
        return [*self._reply.prose.feed(text), *self._read_fields(self._fields.feed(text))]

    def finish(
        self, reason: FinishReason = "stop", *, interrupted: bool = False
    ) -> tuple[list[DecisionPiece], Decision]:
        """End the reply; returns the last pieces, and the decision.

        `interrupted` means that the reply did not come to its end: a person stopped it, or its provider failed.
        """
        raw, pieces = self._reply.text.raw, self._read_fields(self._fields.finish())
        is_object = _OBJECT_BEGINS.match(raw) is not None
        action = self._find_action(raw) if is_object or not _CHANNEL.search(raw) else None
        if action is not None:
            pieces += [] if is_object else self._withdraw_prose(raw)
            last, decision = self._decide(raw, action, self._reply.text.find_stop(reason))
        elif is_object:
            last, decision = [], self._decide_without_action(raw, reason)
        else:
            last, decision = self._reply.finish(reason, interrupted=interrupted)
        return [*pieces, *last], decision

    def _find_action(self, text: str) -> Action | None:
        """The action of a reply that is one object, in a fence or not, or that ends with one. Any other object may be
        quoted."""
        read = read_json(text)
        if not isinstance(read, JsonRefusal):
            fields = as_object(read.value)
            return None if fields is None else read_json_action(fields, self._names)
        return next(iter(find_json_actions(text, self._names)), None)

    def _withdraw_prose(self, raw: str) -> list[DecisionPiece]:
        """What was written before the object is thinking."""
        said = read_usable_text(read_text_before_actions(raw))
        return [*self._reply.prose.withdraw(), *([ThinkingText(said, 0)] if said else [])]

    def _read_fields(self, pieces: Iterable[FieldPiece]) -> list[DecisionPiece]:
        return [shown for piece in pieces for shown in self._read_field(str(piece.path[0]), piece)]

    def _read_field(self, name: str, piece: FieldPiece) -> list[DecisionPiece]:
        if len(piece.path) > 1:
            return self._call.read(piece)
        if isinstance(piece, FieldEnd):
            if name == "action":
                return self._answer.release() if piece.complete and self._kind in FINAL_KINDS else []
            return self._answer.end(complete=piece.complete) if name in ANSWER_KEYS else []
        if name == "reasoning":
            self._reasoning.append(piece.text)
            return [ThinkingText(piece.text, 0)]
        if name in ANSWER_KEYS:
            return self._answer.feed(piece.text)
        if name == "action":
            self._kind = (self._kind + piece.text)[:MAX_KNOWN_CHARS]
        if name in TOOL_KEYS:
            self._tools[name] = (self._tools.get(name, "") + piece.text)[:MAX_KNOWN_CHARS]
            self._call.tool_id = next(filter(None, map(self._tools.get, TOOL_KEYS)))
        return []

    def _decide(self, raw: str, action: Action, stopped_by: CutReason | None) -> tuple[list[DecisionPiece], Decision]:
        """The decision of a reply with an action, which is whole even if the reply was cut after it."""
        beside = "".join(self._reasoning)
        if action.final_answer is not None:
            pieces: list[DecisionPiece] = []
            if (answer := self._answer.answer) is None:
                answer = cite_answer(self._reply.sources, action.final_answer)
                pieces = show_whole(answer)
            return pieces, decide_answer(raw, answer, stopped_by, beside)
        action, code = take_program(action, self._limits.code_tools)
        programs = () if code is None else (Program(clean_program(code), 0),)
        return [], Decision(raw, actions=(action,), programs=programs, beside=beside, stopped_by=stopped_by)

    def _decide_without_action(self, raw: str, reason: FinishReason) -> Decision:
        """An object that can't be read. Its answer, as far as it was shown, counts."""
        if (answer := self._answer.answer) is None:
            return self._reply.decide_nothing(reason)
        return decide_answer(raw, answer, self._reply.text.find_stop(reason), "".join(self._reasoning))


def _is_streamed(path: Path) -> bool:
    return len(path) == 1 or (len(path) == 2 and path[0] in ARGUMENT_KEYS)
