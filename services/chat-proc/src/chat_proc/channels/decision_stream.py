"""Parses one reply of the deciding model: pieces to show while it is written, and the `Decision` at its end."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import assert_never

from chat_proc.channels.action_stream import ActionPiece, ActionStream, AnswerText, FieldClosed, GatedAction
from chat_proc.channels.actions import (
    Action,
    ActionJudge,
    ActionRefusal,
    Decision,
    Program,
    StreamedAnswer,
    read_action,
)
from chat_proc.channels.citations import CitationReplacer, cite_text, find_used_sids, index_sources
from chat_proc.channels.decision_problems import DecisionLimits, ReplyFacts, Sorted, find_problems, sort_actions
from chat_proc.channels.json_actions import find_json_actions, take_program
from chat_proc.channels.parser import (
    ChannelClosed,
    ChannelOpened,
    ChannelParser,
    ChannelSyntax,
    ChannelText,
    OutsideText,
    Piece,
    TagTable,
)
from chat_proc.channels.prose import ProseStream, has_own_keys, read_usable_text, unfence
from chat_proc.models.json_values import replace_unstorable
from everturn.models.port import FinishReason
from everturn.timeline.sources import Source
from everturn.timeline.turns import CutReason

_DECISION_TAGS = TagTable(
    (
        ChannelSyntax("thinking"),
        ChannelSyntax("answer"),
        ChannelSyntax("action", "json", aliases=("ReactDecisionOutV2",)),
        ChannelSyntax("code", "code"),
        ChannelSyntax("summary"),
    )
)
_NO_LIMITS_GIVEN = DecisionLimits()
_LEADING_BLANK_LINES = re.compile(r"(?:[ \t]*\r?\n)+")
_FENCE_LINE = re.compile(r"```[\w+.-]*\s*")


@dataclass(frozen=True, slots=True)
class ThinkingText:
    """The next piece of a thinking channel."""

    text: str
    instance: int


@dataclass(frozen=True, slots=True)
class CodeText:
    """The next piece of a program, exactly as written."""

    text: str
    instance: int


@dataclass(frozen=True, slots=True)
class AnswerWithdrawn:
    """What was streamed as the answer so far is not an answer, because the reply goes on with an action."""


DecisionPiece = ThinkingText | CodeText | ActionPiece | AnswerWithdrawn | ChannelOpened | ChannelClosed


class DecisionStream:
    """Feed it the reply, then call `finish` once. A reply looks like this:

        <channel:thinking>...</channel:thinking>
        <channel:action>{"action": "call_tool", "tool_call": {"tool_id": "...", "params": {...}}}</channel:action>
        <channel:code>the program of the action before, if its tool takes one</channel:code>

    With several actions, a judge checks each as soon as its tool is known, so refused ones are not shown; otherwise
    only the first action is streamed. A reply without an action channel can have actions as JSON in its text: see
    `json_actions`, and there for `names`. Otherwise it is an answer: its text outside of channels, or that of an answer
    channel.
    """

    def __init__(
        self,
        *,
        names: Mapping[str, str] = MappingProxyType({}),
        sources: Iterable[Source] = (),
        limits: DecisionLimits = _NO_LIMITS_GIVEN,
    ) -> None:
        self._names = names
        self._sources = index_sources(sources)
        self._limits = limits
        self._parser = ChannelParser(_DECISION_TAGS)
        self._raw: list[str] = []
        self._raw_chars_left = limits.max_reply_chars
        self._thinking_chars_left = limits.max_thinking_chars
        self._capped = False
        self._thinking_capped = False
        self._outside_chars_left = limits.max_outside_chars
        self._is_refused = False
        self._outside: list[str] = []
        self._prose: ProseStream | None = ProseStream(CitationReplacer(self._sources))
        self._texts: list[str] = []
        self._thinking: list[str] = []
        self._summaries: list[str] = []
        self._programs: list[Program] = []
        self._judge = ActionJudge(limits.fanout) if limits.fanout else None
        self._action: ActionStream | GatedAction | None = None
        self._readings: list[Action | ActionRefusal] = []
        self._answer: StreamedAnswer | None = None
        self._any_channel = False
        self._in_answer_channel = False
        """Whether an answer channel was opened: then text outside of channels is not the answer."""
        self._in_thinking = False
        self._thinking_instance = 0

    @property
    def is_over(self) -> bool:
        """Whether no further text can change the result of the reply, so that the generation can be stopped.

        The reply has reached a cap, or it can only be refused. A shown answer is kept in any case.
        """
        refused = self._is_refused and self._limits.stops_early
        return self._capped or refused or self._outside_chars_left < 0

    def feed(self, text: str) -> list[DecisionPiece]:
        """Return the pieces that `text` adds; none once the reply is over."""
        if self.is_over:
            return []
        if len(text) > self._raw_chars_left:
            text = text[: self._raw_chars_left]
            self._capped = True
        self._raw_chars_left -= len(text)
        text = replace_unstorable(text)
        self._raw.append(text)
        if self._in_thinking and self._parser.is_plain(text):
            return self._read_thinking(text)
        return self._read_all(self._parser.feed(text))

    def finish(
        self, reason: FinishReason = "stop", *, interrupted: bool = False
    ) -> tuple[list[DecisionPiece], Decision]:
        """End the reply; returns the last pieces, and the decision.

        `interrupted` means that the reply did not come to its end: a person stopped it, or its provider failed.
        """
        cut = interrupted or reason != "stop" or self.is_over
        pieces = self._read_all(self._parser.finish(cut=cut))
        if not self._readings:
            pieces += self._read_without_action(complete=not cut)
        return pieces, self._build_decision(reason)

    def _read_all(self, pieces: list[Piece]) -> list[DecisionPiece]:
        shown: list[DecisionPiece] = []
        for piece in pieces:
            match piece:
                case ChannelText():
                    shown += self._read_text(piece)
                case OutsideText():
                    self._outside.append(piece.text)
                    shown += self._read_outside(piece.text)
                case ChannelOpened():
                    shown += self._open(piece)
                    shown.append(piece)
                case ChannelClosed():
                    shown += self._close(piece)
                    shown.append(piece)
                case _:
                    assert_never(piece)
        return shown

    def _read_outside(self, text: str) -> list[DecisionPiece]:
        if self._prose is None or self._in_answer_channel:
            self._outside_chars_left -= len(text)
            return []
        return self._read_prose(self._prose, text)

    def _read_prose(self, prose: ProseStream, text: str) -> list[DecisionPiece]:
        was_settled, shown = prose.is_settled, prose.feed(text)
        if prose.is_open:
            self._outside_chars_left -= len(text)
        if was_settled and not prose.is_settled:
            # What the whole text is, is decided at its end. In a channel of its own it can only be an answer.
            self._prose = None if self._in_answer_channel else prose
            return [AnswerWithdrawn()] if prose.shown else []
        return [AnswerText(shown, 0)] if shown else []

    def _withdraw_prose(self) -> list[DecisionPiece]:
        """What was written outside of actions is not an answer."""
        prose, self._prose = self._prose, None
        return [AnswerWithdrawn()] if prose is not None and prose.is_settled and prose.shown else []

    def _read_without_action(self, *, complete: bool) -> list[DecisionPiece]:
        """Read a reply that has ended without an action channel: it has actions as JSON, or is an answer."""
        outside, prose = "".join(self._outside), self._prose
        if prose is None:
            return []
        rest = prose.finish()
        if not self._in_answer_channel and (actions := find_json_actions(outside, self._names)):
            return self._take_actions(actions, complete=complete)
        if prose.is_settled and prose.raw:
            self._answer = StreamedAnswer(prose.raw, prose.shown, prose.used_sids, complete)
        elif not prose.is_settled and (usable := read_usable_text(outside)):
            self._answer = cite_answer(self._sources, usable, complete=complete)
            rest = self._answer.shown
        else:
            self._take_refused_action(unfence(outside))
            return []
        return [*([AnswerText(rest, 0)] if rest else []), FieldClosed("answer", 0, complete)]

    def _take_actions(self, actions: Iterable[Action], *, complete: bool) -> list[DecisionPiece]:
        pieces = self._withdraw_prose()
        self._any_channel = True
        self._outside.clear()
        for index, action in enumerate(actions):
            if action.final_answer is not None:
                self._answer = cite_answer(self._sources, action.final_answer)
                pieces += [AnswerText(self._answer.shown, 0), FieldClosed("answer", 0, complete)]
            bare, code = take_program(action, self._limits.code_tools)
            self._programs += [] if code is None else [Program(clean_program(code), index)]
            self._readings.append(bare)
        return pieces

    def _take_refused_action(self, text: str) -> None:
        """Read a reply that is an invalid action without its channel, so that the model learns what is wrong with
        it."""
        if not self._any_channel and text.startswith("{") and has_own_keys(text):
            self._readings.append(read_action(text))
            self._any_channel = True
            self._outside.clear()

    def _read_text(self, piece: ChannelText) -> Sequence[DecisionPiece]:
        if self._action is not None:
            pieces = self._action.feed(piece.text)
            return pieces if self._may_stream(piece.instance) else ()
        if self._in_thinking:
            return self._read_thinking(piece.text)
        if piece.channel == "answer":
            return self._read_prose(self._prose, piece.text) if self._prose is not None else ()
        self._texts.append(piece.text)
        return (CodeText(piece.text, piece.instance),) if piece.channel == "code" else ()

    def _read_thinking(self, text: str) -> list[DecisionPiece]:
        if len(text) > self._thinking_chars_left:
            text = text[: self._thinking_chars_left]
            self._thinking_capped = True
        if not text:
            return []
        self._thinking_chars_left -= len(text)
        self._texts.append(text)
        return [ThinkingText(text, self._thinking_instance)]

    def _open(self, piece: ChannelOpened) -> list[DecisionPiece]:
        self._any_channel = True
        if self._judge is None and self._readings and isinstance(self._readings[0], ActionRefusal):
            # Only now: stopping a reply that ends with its refused action would save nothing, but lose its usage
            # report.
            self._is_refused = True
        self._in_thinking = piece.channel == "thinking"
        if self._in_thinking:
            self._thinking_instance = piece.instance
            self._is_refused = self._is_refused or (self._limits.one_thinking and piece.instance > 0)
        elif piece.channel == "action":
            self._action = self._open_action(piece.instance)
            return self._withdraw_prose()
        elif piece.channel == "answer" and not self._readings and not self._in_answer_channel:
            withdrawn = self._withdraw_prose()
            self._prose = ProseStream(CitationReplacer(self._sources), settled=True)
            self._in_answer_channel = True
            return withdrawn
        return []

    def _open_action(self, instance: int) -> ActionStream | GatedAction:
        if self._judge is not None:
            cite = CitationReplacer(self._sources)
            return GatedAction(ActionStream(self._judge.passed, cite, self._names), self._judge)
        self._is_refused = self._is_refused or instance > 0
        return ActionStream(instance, CitationReplacer(self._sources) if instance == 0 else None, self._names)

    def _may_stream(self, instance: int) -> bool:
        return self._judge is not None or instance == 0

    def _close(self, piece: ChannelClosed) -> Sequence[DecisionPiece]:
        text = "".join(self._texts)
        self._texts.clear()
        self._in_thinking = False
        match piece.channel:
            case "action":
                return self._close_action(piece.instance)
            case "code":
                self._close_code(text, complete=piece.complete)
            case "thinking":
                self._thinking.append(text.strip())
            case "answer":
                """Its text is the prose."""
            case _:
                self._summaries.append(text.strip())
        return ()

    def _close_action(self, instance: int) -> Sequence[DecisionPiece]:
        if self._action is None:
            return ()
        pieces, reading = self._action.finish()
        self._readings.append(reading)
        self._answer = self._answer or self._action.answer
        self._action = None
        if not self._may_stream(instance):
            return ()
        if self._answer is None and isinstance(reading, Action) and reading.final_answer is not None:
            # In another form than that of a channel, the answer is known only now.
            self._answer = cite_answer(self._sources, reading.final_answer)
            return [*pieces, AnswerText(self._answer.shown, instance), FieldClosed("answer", instance, complete=True)]
        return pieces

    def _close_code(self, text: str, *, complete: bool) -> None:
        program = clean_program(text)
        if not program:
            return
        belongs = bool(self._readings) and isinstance(self._readings[-1], Action)
        self._programs.append(Program(program, len(self._actions()) - 1 if belongs else None, complete))

    def _actions(self) -> tuple[Action, ...]:
        return tuple(reading for reading in self._readings if isinstance(reading, Action))

    def _build_decision(self, reason: FinishReason) -> Decision:
        if self._answer is not None and not self._readings:
            return Decision(
                raw="".join(self._raw),
                thinking=tuple(text for text in self._thinking if text),
                actions=(Action("complete", final_answer=self._answer.raw),),
                summary="\n\n".join(filter(None, self._summaries)) or None,
                answer=self._answer,
                stopped_by=self._find_stop(reason),
            )
        facts = ReplyFacts(
            raw="".join(self._raw),
            outside="".join(self._outside),
            any_channel=self._any_channel,
            readings=self._readings,
            programs=self._programs,
            summary="\n\n".join(filter(None, self._summaries)) or None,
            reply_capped=self._capped,
            outside_capped=self._outside_chars_left < 0,
            thinking_capped=self._thinking_capped,
            thinking_channels=len(self._thinking),
            finish=reason,
        )
        sorted_out = self._sort(facts)
        return Decision(
            raw=facts.raw,
            thinking=tuple(text for text in self._thinking if text),
            actions=sorted_out.actions,
            programs=sorted_out.programs,
            summary=facts.summary,
            answer=self._answer,
            outside=facts.outside,
            problems=sorted_out.problems,
            stopped_by=self._find_stop(reason),
        )

    def _find_stop(self, reason: FinishReason) -> CutReason | None:
        if self._capped or self._outside_chars_left < 0:
            return "size_limit"
        return None if reason == "stop" else reason

    def _sort(self, facts: ReplyFacts) -> Sorted:
        if self._limits.fanout is not None:
            return sort_actions(facts, self._limits, self._limits.fanout)
        return Sorted(self._actions(), tuple(self._programs), find_problems(facts, self._limits))


def cite_answer(sources: Mapping[int, Source], answer: str, *, complete: bool = True) -> StreamedAnswer:
    """An answer that was not streamed, as one that was."""
    return StreamedAnswer(answer, cite_text(sources, answer), find_used_sids(sources, answer), complete)


def clean_program(text: str) -> str:
    """A program without the surrounding code fence and blank lines that models write; empty if nothing remains."""
    lines = text.strip().split("\n") if text.lstrip().startswith("```") else []
    if len(lines) > 1 and _FENCE_LINE.fullmatch(lines[0]) and lines[-1].strip() == "```":
        text = "\n".join(lines[1:-1])
    blank = _LEADING_BLANK_LINES.match(text)
    body = text[blank.end() if blank else 0 :].rstrip()
    return f"{body}\n" if body else ""
