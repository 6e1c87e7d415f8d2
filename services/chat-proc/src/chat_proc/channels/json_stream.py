"""Reads a reply that is one JSON object: pieces to show while it is written, and the `Decision` at its end.

The codec `json` is for models that can neither write channels nor make native tool calls.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from chat_proc.channels.actions import FINAL_KINDS, Action, ActionRefusal, Decision, Problem, Program
from chat_proc.channels.citations import CitationReplacer
from chat_proc.channels.decision_problems import DecisionLimits, choose_actions
from chat_proc.channels.json_actions import (
    ARGUMENT_KEYS,
    TOOL_KEYS,
    find_json_actions,
    read_json_action,
    read_text_before_actions,
    take_program,
)
from chat_proc.channels.json_text import FieldEnd, FieldPiece, JsonFieldReader, Path
from chat_proc.channels.other_forms import TextReply, decide_answer
from chat_proc.channels.pieces import AnswerWithdrawn, DecisionPiece, ThinkingText
from chat_proc.channels.prose import ANSWER_KEYS, has_own_keys, read_usable_text
from chat_proc.channels.reply_parts import (
    MAX_KNOWN_CHARS,
    AnswerField,
    CallFields,
    cite_answer,
    clean_program,
    show_whole,
)
from chat_proc.models.json_values import FENCE_START, JsonRefusal, JsonValue, as_object, read_json
from everturn.models.port import FinishReason
from everturn.timeline.sources import Source
from everturn.timeline.turns import CutReason

_SHAPE = '{"action": "tool_call", "tool": "...", "args": {...}} or {"action": "final_answer", "answer": "..."}'
_FORM_KEYS = frozenset({"args", "params", "reasoning", "notes"})
"""The other keys of an action: an object of these alone is an unfinished action, and not an answer."""
_UNUSABLE = Problem("not_json", f"The reply is not a valid action. Reply with {_SHAPE}, and nothing else.")
_CHANNEL = re.compile(r"(?<!`)<channel:", re.IGNORECASE)
_OBJECT_BEGINS = re.compile(rf"\s*+(?:{FENCE_START}\s*+)?\{{")


class JsonStream:
    """Feed it the reply, then call `finish` once. A reply looks like this, in a code fence or not:

        {"action": "tool_call", "tool": "react.read", "args": {"paths": ["fi:..."]}, "reasoning": "..."}
        {"action": "final_answer", "answer": "...", "reasoning": "..."}

    A reply that holds no object is the answer. One with text before its object is a reply with an object. Of several
    actions, those count that `choose_actions` names; with `ignores_calls`, only an answer does.
    """

    def __init__(
        self,
        *,
        names: Mapping[str, str] = MappingProxyType({}),
        sources: Iterable[Source] = (),
        limits: DecisionLimits,
        ignores_calls: bool = False,
    ) -> None:
        self._names = names
        self._limits = limits
        self._ignores_calls = ignores_calls
        self._reply = TextReply(
            names,
            sources,
            limits,
            unusable=_UNUSABLE,
            wanted=f"Reply with {_SHAPE}.",
            ignores_calls=ignores_calls,
        )
        self._fields = JsonFieldReader(_is_streamed, strings_only=True)
        self._call = CallFields(0, code_tools=limits.code_tools)
        self._answer = AnswerField(CitationReplacer(self._reply.sources))
        self._answer_key = ""
        """The first key of an answer that has a text; another one would double it."""
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
        raw, is_over = self._reply.text.raw, self._fields.is_over
        pieces = self._read_fields(self._fields.finish())
        is_object = _OBJECT_BEGINS.match(raw) is not None
        readings = self._find_actions(raw) if is_object or not _CHANNEL.search(raw) else ()
        if readings:
            pieces += [] if is_object else self._withdraw_prose(raw)
            last, decision = self._decide(raw, readings, reason)
        elif is_object:
            last, decision = self._decide_without_action(raw, reason, interrupted=interrupted, is_over=is_over)
        else:
            last, decision = self._reply.finish(reason, interrupted=interrupted)
        return [*pieces, *last], decision

    def _find_actions(self, text: str) -> Sequence[Action | ActionRefusal]:
        """The action of a reply that is one object, in a fence or not, or else those that `find_json_actions` finds."""
        read = read_json(text)
        if isinstance(read, JsonRefusal):
            return find_json_actions(text, self._names)
        fields = as_object(read.value)
        action = None if fields is None else read_json_action(fields, self._names)
        return () if action is None else (action,)

    def _withdraw_prose(self, raw: str) -> list[DecisionPiece]:
        """What was written before the object is thinking."""
        said = read_usable_text(read_text_before_actions(raw))
        if said:
            self._reasoning.append(said)
        return [*self._reply.prose.withdraw(), *([ThinkingText(said, 0)] if said else [])]

    def _read_fields(self, pieces: Iterable[FieldPiece]) -> list[DecisionPiece]:
        return [shown for piece in pieces for shown in self._read_field(str(piece.path[0]), piece)]

    def _read_field(self, name: str, piece: FieldPiece) -> list[DecisionPiece]:
        if len(piece.path) > 1:
            return self._call.read(piece)
        if isinstance(piece, FieldEnd):
            if name == "action":
                return self._answer.release() if piece.complete and self._kind in FINAL_KINDS else []
            return self._answer.end(complete=piece.complete) if name == self._answer_key else []
        if name == "reasoning":
            self._reasoning.append(piece.text)
            return [ThinkingText(piece.text, 0)]
        if name in ANSWER_KEYS:
            self._answer_key = self._answer_key or name
            return self._answer.feed(piece.text) if name == self._answer_key else []
        if name == "action":
            self._kind = (self._kind + piece.text)[:MAX_KNOWN_CHARS]
        if name in TOOL_KEYS:
            self._tools[name] = (self._tools.get(name, "") + piece.text)[:MAX_KNOWN_CHARS]
            self._call.tool_id = next(filter(None, map(self._tools.get, TOOL_KEYS)))
        return []

    def _decide(
        self, raw: str, readings: Sequence[Action | ActionRefusal], reason: FinishReason
    ) -> tuple[list[DecisionPiece], Decision]:
        """The decision of a reply with actions, which are whole even if the reply was cut after them."""
        beside, stopped_by = "".join(self._reasoning), self._reply.text.find_stop(reason)
        chosen = choose_actions(readings, ignores_calls=self._ignores_calls)
        if self._ignores_calls and not chosen.indexes and (shown := self._answer.answer) is not None:
            return [], decide_answer(raw, shown, stopped_by, beside=beside)
        if (
            self._ignores_calls
            and not chosen.indexes
            and (said := self._reply.answer_with_text(reason, has_actions=True))
        ):
            return said
        actions = [reading for reading in readings if isinstance(reading, Action)]
        programs: list[Program] = []
        calls: list[Action] = []
        for action in (actions[index] for index in chosen.indexes):
            if action.final_answer is not None:
                return self._decide_final(raw, action.final_answer, stopped_by, beside, chosen.problems)
            call, code = take_program(action, self._limits.code_tools)
            programs += [] if code is None else [Program(clean_program(code), len(calls))]
            calls.append(call)
        # What looked like an answer was followed by the closing tag of thinking.
        withdrawn: list[DecisionPiece] = [AnswerWithdrawn()] if calls and self._answer.answer else []
        return withdrawn, Decision(
            raw, tuple(calls), tuple(programs), beside=beside, problems=chosen.problems, stopped_by=stopped_by
        )

    def _decide_final(
        self, raw: str, written: str, stopped_by: CutReason | None, beside: str, problems: tuple[Problem, ...]
    ) -> tuple[list[DecisionPiece], Decision]:
        pieces: list[DecisionPiece] = []
        if (answer := self._answer.answer) is None:
            answer = cite_answer(self._reply.sources, written)
            pieces = show_whole(answer)
        return pieces, decide_answer(raw, answer, stopped_by, beside=beside, problems=problems)

    def _decide_without_action(
        self, raw: str, reason: FinishReason, *, interrupted: bool, is_over: bool
    ) -> tuple[list[DecisionPiece], Decision]:
        """An object that can't be read. If the reply ended inside it, its answer counts as far as it was shown; if the
        object `is_over` and invalid, that may be only a part of what the model meant. Other valid JSON is an answer."""
        answer, stopped_by, read = self._answer.answer, self._reply.text.find_stop(reason), read_json(raw)
        if (
            isinstance(read, JsonValue)
            and not has_own_keys(raw)
            and not _FORM_KEYS.issuperset(as_object(read.value) or {})
        ):
            answer = cite_answer(self._reply.sources, raw.strip())
            return show_whole(answer), decide_answer(raw, answer, stopped_by, beside="".join(self._reasoning))
        is_broken = is_over and not interrupted and stopped_by is None
        if answer is None or is_broken:
            unusable = _explain(read) if isinstance(read, JsonRefusal) else None
            return [AnswerWithdrawn()] if answer else [], self._reply.decide_nothing(reason, unusable)
        answer = replace(answer, complete=answer.complete and not is_over)
        return [], decide_answer(raw, answer, stopped_by, beside="".join(self._reasoning))


def _explain(refusal: JsonRefusal) -> Problem:
    sentence = f"The reply is not one valid JSON object ({refusal.detail}). Reply with {_SHAPE}, and nothing else."
    return Problem("not_json", sentence)


def _is_streamed(path: Path) -> bool:
    return len(path) == 1 or (len(path) == 2 and path[0] in ARGUMENT_KEYS)
