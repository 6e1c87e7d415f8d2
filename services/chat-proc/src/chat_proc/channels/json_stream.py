"""Reads a reply that is one JSON object: pieces to show while it is written, and the `Decision` at its end.

The codec `json` is for models that can neither write channels nor make native tool calls.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Literal

from chat_proc.channels.action_stream import AnswerText, ContentText, FieldClosed
from chat_proc.channels.actions import Action, Decision, Problem, Program, StreamedAnswer
from chat_proc.channels.citations import CitationReplacer, index_sources
from chat_proc.channels.decision_problems import DecisionLimits
from chat_proc.channels.decision_stream import (
    AnswerWithdrawn,
    CodeText,
    DecisionPiece,
    ThinkingText,
    cite_answer,
    clean_program,
)
from chat_proc.channels.json_actions import (
    ANSWER_KEYS,
    ARGUMENT_KEYS,
    FINAL_KINDS,
    TOOL_KEYS,
    find_json_actions,
    read_json_action,
    read_text_before_actions,
    take_program,
)
from chat_proc.channels.json_text import FieldPiece, FieldText, JsonFieldReader, Path
from chat_proc.channels.other_forms import read_other_form
from chat_proc.channels.prose import ProseStream, read_usable_text, unfence
from chat_proc.models.json_values import JsonRefusal, as_object, read_json, replace_unstorable
from everturn.models.port import FinishReason
from everturn.timeline.forms import CODE_PARAM, LONG_PARAMS
from everturn.timeline.sources import Source
from everturn.timeline.turns import CutReason

SHAPE = '{"action": "tool_call", "tool": "...", "args": {...}} or {"action": "final_answer", "answer": "..."}'
_MAX_KNOWN_CHARS = 1_000
_CHANNEL = re.compile(r"(?<!`)<channel:", re.IGNORECASE)
_FENCE_START = re.compile(r"```[\w+.-]*\s*\Z|```[\w+.-]*\s*(?=\{)")
_FOLLOWS_FENCE = re.compile(r"\s*(?:`{1,3}(?:[\w+.-]*\s*)?)?\Z")


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
        self._rows = tuple(sources)
        self._sources = index_sources(self._rows)
        self._limits = limits
        self._chars_left = limits.max_reply_chars
        self._raw: list[str] = []
        self._form: Literal["open", "object", "prose"] = "open"
        self._begin = ""
        self._prose = ProseStream(CitationReplacer(self._sources))
        self._cite = CitationReplacer(self._sources)
        self._fields = JsonFieldReader(_is_streamed, strings_only=True)
        self._known: dict[Path, str] = {}
        self._ended: set[Path] = set()
        self._reasoning: list[str] = []
        self._waiting: list[str] = []
        self._answer_path: Path | None = None
        self._answer_complete = False
        self._answer_raw: list[str] = []
        self._answer_shown: list[str] = []

    @property
    def is_over(self) -> bool:
        """Whether the rest of the reply is ignored, because it is too long."""
        return self._chars_left < 0

    def feed(self, text: str) -> list[DecisionPiece]:
        """Return the pieces that the next text adds."""
        if self.is_over:
            return []
        if len(text) > self._chars_left:
            text = text[: self._chars_left]
            self._chars_left = -1
        else:
            self._chars_left -= len(text)
        text = replace_unstorable(text)
        self._raw.append(text)
        if self._form == "open":
            self._begin += text
            return self._begin_form()
        return self._read_fields(self._fields.feed(text)) if self._form == "object" else self._read_prose(text)

    def finish(
        self, reason: FinishReason = "stop", *, interrupted: bool = False
    ) -> tuple[list[DecisionPiece], Decision]:
        """End the reply; returns the last pieces, and the decision.

        `interrupted` means that the reply did not come to its end: a person stopped it, or its provider failed.
        """
        cut = interrupted or reason != "stop" or self.is_over
        stopped_by: CutReason | None = "size_limit" if self.is_over else None if reason == "stop" else reason
        raw = "".join(self._raw)
        pieces = self._read_fields(self._fields.finish()) if self._form == "object" else []
        if self._form != "object" and _CHANNEL.search(raw):
            return self._end_prose(raw, reason, stopped_by, cut=cut)
        if (action := self._find_action(raw)) is not None:
            return [*pieces, *self._withdraw_prose()], self._decide(raw, action, stopped_by, cut=cut)
        if self._form == "object":
            return pieces, self._decide_without_action(raw, reason, stopped_by, cut=cut)
        return self._end_prose(raw, reason, stopped_by, cut=cut)

    def _find_action(self, text: str) -> Action | None:
        """The action of a reply that is one object, in a fence or not, or that ends with one. Any other object may be
        quoted."""
        read = read_json(unfence(text))
        if not isinstance(read, JsonRefusal):
            fields = as_object(read.value)
            return None if fields is None else read_json_action(fields, self._names)
        return next(iter(find_json_actions(text, self._names)), None)

    def _begin_form(self) -> list[DecisionPiece]:
        """Decide what the reply is from its first characters."""
        begun, text = self._begin.lstrip(), self._begin
        if begun.startswith("`"):
            fence = _FENCE_START.match(begun)
            begun = begun[fence.end() :] if fence else ("" if _FOLLOWS_FENCE.match(begun) else begun)
        if not begun:
            return []
        self._begin = ""
        if begun.startswith("{"):
            self._form = "object"
            return self._read_fields(self._fields.feed(begun))
        self._form = "prose"
        return self._read_prose(text)

    def _read_prose(self, text: str) -> list[DecisionPiece]:
        was_settled = self._prose.is_settled
        shown = self._prose.feed(text)
        if was_settled and not self._prose.is_settled and self._prose.shown:
            return [AnswerWithdrawn()]
        return [AnswerText(shown, 0)] if shown else []

    def _withdraw_prose(self) -> list[DecisionPiece]:
        """What was written before the object is thinking."""
        if self._form == "object":
            return []
        said = read_usable_text(read_text_before_actions("".join(self._raw)))
        withdrawn: list[DecisionPiece] = [AnswerWithdrawn()] if self._prose.is_settled and self._prose.shown else []
        return [*withdrawn, *([ThinkingText(said, 0)] if said else [])]

    def _read_fields(self, read: Iterable[FieldPiece]) -> list[DecisionPiece]:
        shown: list[DecisionPiece] = []
        for piece in read:
            name = str(piece.path[-1])
            is_argument = len(piece.path) > 1
            if not isinstance(piece, FieldText):
                self._ended.add(piece.path)
                if is_argument and name in LONG_PARAMS:
                    shown.append(FieldClosed("content", 0, piece.complete))
                elif not is_argument and name in ANSWER_KEYS:
                    self._answer_complete = piece.complete
                    shown += self._show_answer(ends=True)
                elif piece.path == ("action",):
                    shown += self._show_answer()
            elif piece.path == ("reasoning",):
                self._reasoning.append(piece.text)
                shown.append(ThinkingText(piece.text, 0))
            elif not is_argument and name in ANSWER_KEYS:
                self._answer_path = piece.path
                self._waiting.append(piece.text)
                shown += self._show_answer()
            elif is_argument and name == CODE_PARAM and self._tool in self._limits.code_tools:
                shown.append(CodeText(piece.text, 0))
            elif is_argument and name in LONG_PARAMS:
                shown.append(self._build_content(name, piece.text))
            else:
                self._known[piece.path] = (self._known.get(piece.path, "") + piece.text)[:_MAX_KNOWN_CHARS]
        return shown

    @property
    def _tool(self) -> str | None:
        return next((known for name in TOOL_KEYS if (known := self._known.get((name,)))), None)

    def _show_answer(self, *, ends: bool = False) -> list[DecisionPiece]:
        """Show the waiting answer text, once the object is known to be an answer."""
        if ("action",) not in self._ended or self._known.get(("action",)) not in FINAL_KINDS:
            return []
        raw = "".join(self._waiting)
        self._waiting.clear()
        self._answer_raw.append(raw)
        text = self._cite.feed(raw)
        if ends or self._answer_path in self._ended:
            text += self._cite.finish()
        if not text:
            return []
        self._answer_shown.append(text)
        return [AnswerText(text, 0)]

    def _build_content(self, param: str, text: str) -> ContentText:
        def known(name: str) -> str | None:
            return next((each for key in ARGUMENT_KEYS if (each := self._known.get((key, name)))), None)

        has_path = any((key, "path") in self._ended for key in ARGUMENT_KEYS)
        return ContentText(
            text,
            0,
            param,
            tool_id=self._tool,
            path=known("path") if has_path else None,
            channel=known("channel"),
            kind=known("kind"),
        )

    def _decide(self, raw: str, action: Action, stopped_by: CutReason | None, *, cut: bool) -> Decision:
        action, code = take_program(action, self._limits.code_tools)
        programs = () if code is None else (Program(clean_program(code), 0),)
        answer = None
        if action.final_answer is not None:
            answer = self._keep_answer(complete=not cut) or cite_answer(self._sources, action.final_answer)
        beside = "".join(self._reasoning)
        return Decision(raw, actions=(action,), programs=programs, answer=answer, beside=beside, stopped_by=stopped_by)

    def _decide_without_action(
        self, raw: str, reason: FinishReason, stopped_by: CutReason | None, *, cut: bool
    ) -> Decision:
        """An object that can't be read. Its answer, as far as it was shown, counts."""
        answer = self._keep_answer(complete=self._answer_complete and not cut)
        actions = () if answer is None else (Action("complete", final_answer=answer.raw),)
        problems = () if answer is not None else (_explain(raw, reason),)
        return Decision(raw, actions=actions, answer=answer, outside=raw, problems=problems, stopped_by=stopped_by)

    def _keep_answer(self, *, complete: bool) -> StreamedAnswer | None:
        shown = "".join(self._answer_shown)
        return StreamedAnswer("".join(self._answer_raw), shown, self._cite.used_sids, complete) if shown else None

    def _end_prose(
        self, raw: str, reason: FinishReason, stopped_by: CutReason | None, *, cut: bool
    ) -> tuple[list[DecisionPiece], Decision]:
        if self._form == "open":
            self._read_prose(self._begin)
        rest, prose = self._prose.finish(), self._prose
        if not prose.is_settled or _CHANNEL.search(raw):
            other = read_other_form(raw, self._names, self._rows, self._limits, reason, interrupted=cut)
            if other is None:
                problems = (_explain(raw, reason),)
                return [], Decision(raw, problems=problems, outside=raw, stopped_by=stopped_by)
            return other[0], replace(other[1], stopped_by=stopped_by)
        if not prose.raw:
            return [], Decision(raw, problems=(_explain(raw, reason),), outside=raw, stopped_by=stopped_by)
        answer = StreamedAnswer(prose.raw, prose.shown, prose.used_sids, not cut)
        last: list[DecisionPiece] = [AnswerText(rest, 0)] if rest else []
        actions = (Action("complete", final_answer=prose.raw),)
        return [*last, FieldClosed("answer", 0, not cut)], Decision(
            raw, actions=actions, answer=answer, stopped_by=stopped_by
        )


def _is_streamed(path: Path) -> bool:
    return len(path) == 1 or (len(path) == 2 and path[0] in ARGUMENT_KEYS)


def _explain(raw: str, reason: FinishReason) -> Problem:
    if reason == "length":
        return Problem("cut_by_length", "The reply was cut off at the token limit for one reply. Write less.")
    if reason in ("refusal", "content_filter"):
        return Problem("refused", "The model refused this reply. Do what can be done, or tell the user what can't.")
    if raw.strip():
        return Problem("not_json", f"The reply is not one valid JSON object. Reply with {SHAPE}, and nothing else.")
    return Problem("empty_reply", f"The reply was empty. Reply with {SHAPE}.")
