"""Reads a reply of a model that calls tools in its provider's own form: pieces to show while it is written, and the
`Decision` at its end. Text without a call is the answer; beside calls it is thinking."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from chat_proc.channels.action_stream import AnswerText, ContentText, FieldClosed
from chat_proc.channels.actions import Action, Decision, Problem, Program, StreamedAnswer, ToolCall
from chat_proc.channels.citations import CitationReplacer, index_sources
from chat_proc.channels.decision_problems import MAX_CALLS, DecisionLimits, build_calls_problem
from chat_proc.channels.decision_stream import AnswerWithdrawn, CodeText, DecisionPiece, ThinkingText, clean_program
from chat_proc.channels.json_actions import find_json_actions, take_program
from chat_proc.channels.json_text import FieldPiece, FieldText, JsonFieldReader
from chat_proc.channels.other_forms import read_other_form
from chat_proc.channels.prose import ProseStream
from chat_proc.models.json_values import JsonRefusal, as_object, read_json, replace_unstorable
from everturn.models.port import FinishReason, ToolCallDelta
from everturn.timeline.forms import CODE_PARAM, LONG_PARAMS
from everturn.timeline.sources import Source
from everturn.timeline.turns import CutReason

_MAX_KNOWN_CHARS = 1_000


@dataclass(slots=True)
class _Call:
    """One call while it is written."""

    instance: int
    name: str
    takes_code: bool
    written: list[str] = field(default_factory=list[str])
    known: dict[str, str] = field(default_factory=dict[str, str])
    ended: set[str] = field(default_factory=set[str])
    fields: JsonFieldReader = field(
        default_factory=lambda: JsonFieldReader(lambda path: len(path) == 1, strings_only=True)
    )

    def feed(self, text: str) -> list[DecisionPiece]:
        self.written.append(text)
        return self._read(self.fields.feed(text))

    def finish(self) -> list[DecisionPiece]:
        return self._read(self.fields.finish())

    def _read(self, pieces: Iterable[FieldPiece]) -> list[DecisionPiece]:
        shown: list[DecisionPiece] = []
        for piece in pieces:
            name = str(piece.path[0])
            if not isinstance(piece, FieldText):
                self.ended.add(name)
                if name in LONG_PARAMS:
                    shown.append(FieldClosed("content", self.instance, piece.complete))
            elif name == CODE_PARAM and self.takes_code:
                shown.append(CodeText(piece.text, self.instance))
            elif name in LONG_PARAMS:
                shown.append(self._build_content(name, piece.text))
            else:
                self.known[name] = (self.known.get(name, "") + piece.text)[:_MAX_KNOWN_CHARS]
        return shown

    def _build_content(self, param: str, text: str) -> ContentText:
        known = self.known
        return ContentText(
            text,
            self.instance,
            param,
            tool_id=self.name,
            path=known.get("path") if "path" in self.ended else None,
            channel=known.get("channel"),
            kind=known.get("kind"),
        )


class NativeStream:
    """Feed it the pieces of a reply, then call `finish` once. `names` are the tool ids by their declared names. With
    `ignores_calls`, the text is the answer whatever else the reply has."""

    def __init__(
        self,
        *,
        names: Mapping[str, str],
        sources: Iterable[Source] = (),
        limits: DecisionLimits,
        ignores_calls: bool = False,
    ) -> None:
        self._names = names
        self._sources = tuple(sources)
        self._ignores_calls = ignores_calls
        self._limits = limits
        self._chars_left = limits.max_reply_chars
        self._raw: list[str] = []
        self._calls: dict[int, _Call] = {}
        self._refused = 0
        self._cite = CitationReplacer(index_sources(self._sources))
        self._begin = ""
        self._prose: ProseStream | None = None
        self._thinking: list[str] = []

    @property
    def is_over(self) -> bool:
        """Whether the rest of the reply is ignored, because it is too long."""
        return self._chars_left < 0

    def feed(self, text: str) -> list[DecisionPiece]:
        """Return the pieces that the next text adds."""
        text = self._take(text)
        if not text:
            return []
        if self._calls:
            return self._think(text)
        if self._prose is None:
            self._begin += text
            if not (text := self._begin.lstrip()):
                return []
            # A text with another beginning can only be the answer.
            self._prose = ProseStream(self._cite, settled=text[0] not in "{[<`")
        was_settled, shown = self._prose.is_settled, self._prose.feed(text)
        if was_settled and not self._prose.is_settled and self._prose.shown:
            return [AnswerWithdrawn()]
        return [AnswerText(shown, 0)] if shown else []

    def feed_call(self, delta: ToolCallDelta) -> list[DecisionPiece]:
        """Return the pieces that the next part of a call adds."""
        if self._ignores_calls:
            return []
        pieces = [] if self._calls else self._turn_into_thinking()
        arguments = self._take(delta.arguments)
        call = self._calls.get(delta.index)
        if call is None:
            if len(self._calls) >= MAX_CALLS:
                self._refused += bool(delta.name)
                return []
            tool_id = self._names.get(delta.name, delta.name)
            call = _Call(len(self._calls), tool_id, tool_id in self._limits.code_tools)
            self._calls[delta.index] = call
        return [*pieces, *call.feed(arguments)] if arguments else pieces

    def finish(
        self, reason: FinishReason = "stop", *, interrupted: bool = False
    ) -> tuple[list[DecisionPiece], Decision]:
        """End the reply; returns the last pieces, and the decision.

        `interrupted` means that the reply did not come to its end: a person stopped it, or its provider failed.
        """
        cut = interrupted or reason != "stop" or self.is_over
        stopped_by: CutReason | None = "size_limit" if self.is_over else None if reason == "stop" else reason
        if self._calls:
            pieces = [piece for call in self._calls.values() for piece in call.finish()]
            return pieces, self._decide(stopped_by, cut=cut)
        raw, prose = "".join(self._raw), self._prose or ProseStream(self._cite)
        was_settled, rest = prose.is_settled, prose.finish()
        if not was_settled or find_json_actions(raw, self._names):
            other = read_other_form(
                raw,
                self._names,
                self._sources,
                self._limits,
                reason,
                interrupted=interrupted,
                ignores_calls=self._ignores_calls,
            )
            if other is None:
                problems = _explain_nothing(raw, reason)
                return [], Decision(raw, problems=problems, outside=raw, stopped_by=stopped_by)
            withdrawn: list[DecisionPiece] = [AnswerWithdrawn()] if was_settled and prose.shown else []
            return [*withdrawn, *other[0]], replace(other[1], stopped_by=stopped_by)
        answer = StreamedAnswer(prose.raw, prose.shown, prose.used_sids, not cut)
        last: list[DecisionPiece] = [AnswerText(rest, 0)] if rest else []
        last.append(FieldClosed("answer", 0, not cut))
        actions = (Action("complete", final_answer=prose.raw),)
        return last, Decision(raw, actions=actions, answer=answer, stopped_by=stopped_by)

    def _take(self, text: str) -> str:
        if self.is_over:
            return ""
        if len(text) > self._chars_left:
            text = text[: self._chars_left]
            self._chars_left = -1
        else:
            self._chars_left -= len(text)
        text = replace_unstorable(text)
        self._raw.append(text)
        return text

    def _think(self, text: str) -> list[DecisionPiece]:
        self._thinking.append(text)
        return [ThinkingText(text, 0)]

    def _turn_into_thinking(self) -> list[DecisionPiece]:
        """What was written before the first call is not an answer."""
        said = "".join(self._raw).strip()
        shown = self._prose is not None and self._prose.is_settled and self._prose.shown
        withdrawn: list[DecisionPiece] = [AnswerWithdrawn()] if shown else []
        return [*withdrawn, *(self._think(said) if said else [])]

    def _decide(self, stopped_by: CutReason | None, *, cut: bool) -> Decision:
        actions: list[Action] = []
        programs: list[Program] = []
        problems: list[Problem] = []
        for call in self._calls.values():
            params = _read_arguments("".join(call.written))
            if isinstance(params, str):
                kind = "cut_by_length" if stopped_by == "length" else "not_json"
                sentence = f"The call of {call.name[:80]!a} was not made. {params}"
                problems.append(Problem(kind, sentence, fatal=False, action_instance=call.instance))
                continue
            action = Action("call_tool", tool_call=ToolCall(call.name, params))
            action, code = take_program(action, self._limits.code_tools)
            programs += [] if code is None else [Program(clean_program(code), len(actions))]
            actions.append(action)
        if self._refused:
            problems.append(build_calls_problem(self._refused))
        if not actions:
            problems = [Problem(each.kind, each.sentence, action_instance=each.action_instance) for each in problems]
        thinking = "".join(self._thinking)
        return Decision(
            "".join(self._raw),
            thinking=(thinking,) if thinking else (),
            beside=thinking,
            actions=tuple(actions),
            programs=tuple(programs),
            problems=tuple(problems),
            stopped_by=stopped_by,
        )


def _read_arguments(text: str) -> Mapping[str, object] | str:
    """The parameters of a call; a call without any may have no text. A string says why there are none."""
    if not text.strip():
        return {}
    read = read_json(text)
    if isinstance(read, JsonRefusal):
        return f"Its arguments are not one JSON object ({read.detail})."
    if isinstance(read.value, str) and not isinstance(inner := read_json(read.value), JsonRefusal):
        # Some servers encode the arguments twice.
        read = inner
    if read.value is None:
        return {}
    params = as_object(read.value)
    return "Its arguments are not a JSON object." if params is None else params


def _explain_nothing(raw: str, reason: FinishReason) -> tuple[Problem, ...]:
    if reason == "length":
        return (Problem("cut_by_length", "The reply was cut off at the token limit for one reply. Write less."),)
    if reason in ("refusal", "content_filter"):
        return (Problem("refused", "The model refused this reply. Do what can be done, or tell the user what can't."),)
    if raw.strip():
        return (Problem("no_action", "Call tools as declared, not in the text of the reply."),)
    return (Problem("empty_reply", "The reply was empty. Call a tool, or write the answer."),)
