"""Parses one reply of the deciding model: pieces to show while it is written, and the `Decision` at its end."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import assert_never

from chat_proc.channels.action_stream import ActionStream, GatedAction
from chat_proc.channels.actions import (
    Action,
    ActionJudge,
    ActionRefusal,
    Decision,
    Program,
    StreamedAnswer,
    read_action,
)
from chat_proc.channels.citations import CitationReplacer, index_sources
from chat_proc.channels.decision_problems import DecisionLimits, ReplyFacts, Sorted, find_problems, sort_actions
from chat_proc.channels.json_actions import find_json_actions, read_text_before_actions, take_program
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
from chat_proc.channels.pieces import AnswerWithdrawn, CodeText, DecisionPiece, ThinkingText
from chat_proc.channels.prose import has_own_keys, read_usable_text, unfence
from chat_proc.channels.reply_parts import ProseAnswer, ReplyText, cite_answer, clean_program, show_whole
from everturn.models.port import FinishReason
from everturn.timeline.sources import Source

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
        self._text = ReplyText(limits.max_reply_chars)
        self._outside_chars_left = limits.max_outside_chars
        self._is_refused = False
        self._is_cut = False
        self._outside: list[str] = []
        self._prose: ProseAnswer | None = ProseAnswer(CitationReplacer(self._sources))
        self._texts: list[str] = []
        self._summaries: list[str] = []
        self._programs: list[Program] = []
        self._beside = ""
        self._judge = ActionJudge(limits.fanout) if limits.fanout else None
        self._action: ActionStream | GatedAction | None = None
        self._readings: list[Action | ActionRefusal] = []
        self._answer: StreamedAnswer | None = None
        self._any_channel = False
        self._in_answer_channel = False
        """Whether an answer channel was opened: then text outside of channels is not the answer."""
        self._answer_texts: list[str] = []
        self._in_thinking = False
        self._thinking_channels = 0

    @property
    def is_over(self) -> bool:
        """Whether no further text can change the result of the reply, so that the generation can be stopped.

        The reply has reached a cap, or it can only be refused. A shown answer is kept in any case.
        """
        refused = self._is_refused and self._limits.stops_early
        return self._text.is_capped or refused or self._outside_chars_left < 0

    @property
    def readings(self) -> Sequence[Action | ActionRefusal]:
        """The actions so far, valid or not, in order."""
        return self._readings

    def feed(self, text: str) -> list[DecisionPiece]:
        """Return the pieces that `text` adds; nothing once the reply is over."""
        if self.is_over:
            return []
        text = self._text.take(text)
        if self._in_thinking and self._parser.try_pass(text):
            return self._read_thinking(text)
        return self._read_all(self._parser.feed(text))

    def finish(
        self, reason: FinishReason = "stop", *, interrupted: bool = False
    ) -> tuple[list[DecisionPiece], Decision]:
        """End the reply; returns the last pieces, and the decision.

        `interrupted` means that the reply did not come to its end: a person stopped it, or its provider failed.
        """
        self._is_cut = interrupted or reason != "stop" or self.is_over
        pieces = self._read_all(self._parser.finish(cut=self._is_cut))
        if not self._readings:
            pieces += self._read_without_action(complete=not self._is_cut)
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

    def _read_prose(self, prose: ProseAnswer, text: str) -> list[DecisionPiece]:
        pieces = prose.feed(text)
        if prose.is_open:
            self._outside_chars_left -= len(text)
        return pieces

    def _withdraw_prose(self) -> list[DecisionPiece]:
        """What was written outside of actions is not an answer."""
        prose, self._prose = self._prose, None
        return prose.withdraw() if prose is not None else []

    def _read_without_action(self, *, complete: bool) -> list[DecisionPiece]:
        """Read a reply that has ended without an action channel: it has actions as JSON, or is an answer."""
        outside, prose = "".join(self._outside), self._prose
        if prose is None:
            return []
        if not self._in_answer_channel and (readings := find_json_actions(outside, self._names)):
            return self._take_readings(readings, read_usable_text(read_text_before_actions(outside)))
        pieces, self._answer = prose.finish(complete=complete)
        is_declared = self._in_answer_channel
        written = "".join(self._answer_texts) if is_declared else outside
        if self._answer is None and (usable := read_usable_text(written, is_declared=is_declared)):
            self._answer = cite_answer(self._sources, usable, complete=complete)
            pieces += show_whole(self._answer)
        if self._answer is None:
            self._take_refused_action(unfence(outside))
        return pieces

    def _take_readings(self, readings: Iterable[Action | ActionRefusal], said: str) -> list[DecisionPiece]:
        """Take the actions that a text has as JSON, and what was `said` before them, which is thinking. The rules for
        several actions are those of channels."""
        pieces = [*self._withdraw_prose(), *([ThinkingText(said, self._thinking_channels)] if said else [])]
        self._beside = said
        self._any_channel = True
        self._outside.clear()
        for written in readings:
            reading = written
            if self._judge is not None and isinstance(written, Action):
                reading = self._judge.judge(written.head) or written
            if isinstance(reading, Action):
                reading, code = take_program(reading, self._limits.code_tools)
                self._programs += [] if code is None else [Program(clean_program(code), len(self._actions()))]
                pieces += self._show_answer(reading, len(self._readings))
            self._readings.append(reading)
        return pieces

    def _show_answer(self, action: Action, instance: int) -> list[DecisionPiece]:
        """The answer of an action in another form than that of a channel, which is known only at its end."""
        if self._answer is not None or action.final_answer is None or not self._may_stream(instance):
            return []
        self._answer = cite_answer(self._sources, action.final_answer)
        return show_whole(self._answer, instance)

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
            self._answer_texts.append(piece.text)
            return self._read_prose(self._prose, piece.text) if self._prose is not None else ()
        self._texts.append(piece.text)
        return (CodeText(piece.text, piece.instance),) if piece.channel == "code" else ()

    def _read_thinking(self, text: str) -> list[DecisionPiece]:
        return [ThinkingText(text, self._thinking_channels - 1)] if text else []

    def _open(self, piece: ChannelOpened) -> list[DecisionPiece]:
        self._any_channel = True
        if self._judge is None and self._readings and isinstance(self._readings[0], ActionRefusal):
            # Only now: stopping a reply that ends with its refused action would save nothing, but lose its usage
            # report.
            self._is_refused = True
        self._in_thinking = piece.channel == "thinking"
        if self._in_thinking:
            self._thinking_channels += 1
            self._is_refused = self._is_refused or (self._limits.one_thinking and piece.instance > 0)
        elif piece.channel == "action":
            self._action = self._open_action(piece.instance)
            return self._withdraw_prose()
        elif piece.channel == "answer" and not self._readings and not self._in_answer_channel:
            withdrawn = self._withdraw_prose()
            self._prose = ProseAnswer(CitationReplacer(self._sources), settled_after=1, is_declared=True)
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
            case "thinking" | "answer":
                """Shown as it was read."""
            case _:
                self._summaries.append(text.strip())
        return ()

    def _close_action(self, instance: int) -> Sequence[DecisionPiece]:
        if self._action is None:
            return ()
        pieces, reading = self._action.finish()
        answer, is_broken = self._action.answer, self._action.is_broken
        self._readings.append(reading)
        self._action = None
        if not self._may_stream(instance):
            return ()
        if answer is not None and is_broken:
            if not self._is_cut:
                return [*pieces, AnswerWithdrawn()]
            answer = replace(answer, complete=False)
        self._answer = self._answer or answer
        return [*pieces, *(self._show_answer(reading, instance) if isinstance(reading, Action) else ())]

    def _close_code(self, text: str, *, complete: bool) -> None:
        program = clean_program(text)
        if not program:
            return
        belongs = bool(self._readings) and isinstance(self._readings[-1], Action)
        self._programs.append(Program(program, len(self._actions()) - 1 if belongs else None, complete))

    def _actions(self) -> tuple[Action, ...]:
        return tuple(reading for reading in self._readings if isinstance(reading, Action))

    def _build_decision(self, reason: FinishReason) -> Decision:
        raw, stopped_by = self._text.raw, self._text.find_stop(reason)
        summary = "\n\n".join(filter(None, self._summaries)) or None
        if self._outside_chars_left < 0:
            stopped_by = "size_limit"
        if self._answer is not None and not self._readings:
            answered = (Action("complete", final_answer=self._answer.raw),)
            return Decision(raw, answered, summary=summary, answer=self._answer, stopped_by=stopped_by)
        facts = ReplyFacts(
            raw=raw,
            outside="".join(self._outside),
            any_channel=self._any_channel,
            readings=self._readings,
            programs=self._programs,
            summary=summary,
            reply_capped=self._text.is_capped,
            outside_capped=self._outside_chars_left < 0,
            thinking_channels=self._thinking_channels,
            has_answer_channel=bool("".join(self._answer_texts).strip()),
            finish=reason,
        )
        kept = self._sort(facts)
        return Decision(
            raw,
            kept.actions,
            kept.programs,
            summary,
            self._answer,
            # What was said before a call is thinking, but an answer where no call counts.
            outside=facts.outside or self._beside,
            beside=self._beside,
            problems=kept.problems,
            stopped_by=stopped_by,
        )

    def _sort(self, facts: ReplyFacts) -> Sorted:
        if self._limits.fanout is not None:
            return sort_actions(facts, self._limits, self._limits.fanout)
        return Sorted(self._actions(), tuple(self._programs), find_problems(facts, self._limits))
