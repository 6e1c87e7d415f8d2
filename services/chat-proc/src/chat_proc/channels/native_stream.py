"""Reads a reply of a model that calls tools in its provider's own form: pieces to show while it is written, and the
`Decision` at its end. Text without a call is the answer; beside calls it is thinking."""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from chat_proc.channels.actions import Action, Decision, Problem, Program, ToolCall
from chat_proc.channels.decision_problems import MAX_CALLS, DecisionLimits, build_calls_problem, explain_cut
from chat_proc.channels.json_actions import take_program
from chat_proc.channels.json_text import JsonFieldReader
from chat_proc.channels.other_forms import TextReply
from chat_proc.channels.pieces import DecisionPiece, ThinkingText
from chat_proc.channels.reply_parts import CallFields, clean_program
from chat_proc.models.json_values import JsonRefusal, as_object, read_json
from everturn.models.port import FinishReason, ToolCallDelta
from everturn.timeline.sources import Source
from everturn.timeline.turns import CutReason

_UNUSABLE = Problem(
    "no_action",
    "The reply neither calls a declared tool nor is an answer. Call tools as declared, not in the text, and write the"
    " answer as plain text.",
)


class _Call:
    """One call while it is written."""

    def __init__(self, instance: int, tool_id: str, code_tools: frozenset[str]) -> None:
        self.instance = instance
        self.tool_id = tool_id
        self._fields = CallFields(instance, tool_id=tool_id, code_tools=code_tools)
        self._reader = JsonFieldReader(lambda path: len(path) == 1, strings_only=True)
        self._written: list[str] = []

    def feed(self, text: str) -> list[DecisionPiece]:
        self._written.append(text)
        return [shown for piece in self._reader.feed(text) for shown in self._fields.read(piece)]

    def finish(self) -> list[DecisionPiece]:
        return [shown for piece in self._reader.finish() for shown in self._fields.read(piece)]

    def read_params(self, *, is_cut: bool) -> Mapping[str, object] | str:
        """The parameters; a whole call without any may have no text. A string says why they can't be read."""
        text = "".join(self._written)
        if not text.strip():
            return "It has no arguments." if is_cut else {}
        read = read_json(text)
        if isinstance(read, JsonRefusal):
            return f"Its arguments are not one JSON object ({read.detail})."
        if isinstance(read.value, str) and not isinstance(inner := read_json(read.value), JsonRefusal):
            # Some servers encode the arguments twice.
            read = inner
        params = as_object({} if read.value is None else read.value)
        return "Its arguments are not a JSON object." if params is None else params


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
        self._ignores_calls = ignores_calls
        self._limits = limits
        self._reply = TextReply(
            names,
            sources,
            limits,
            unusable=_UNUSABLE,
            wanted="Call a tool, or write the answer.",
            # A text that begins no markup and no JSON can only be the answer, since calls are declared.
            settled_after=1,
            ignores_calls=ignores_calls,
        )
        self._calls: dict[int, _Call] = {}
        self._refused = 0
        self._thinking: list[str] = []

    @property
    def is_over(self) -> bool:
        """Whether the rest of the reply is ignored, because it is too long."""
        return self._reply.text.is_capped

    def feed(self, text: str) -> list[DecisionPiece]:
        """Return the pieces that the next text adds."""
        text = self._reply.text.take(text)
        return self._think(text) if self._calls else self._reply.prose.feed(text)

    def feed_call(self, delta: ToolCallDelta) -> list[DecisionPiece]:
        """Return the pieces that the next part of a call adds."""
        if self._ignores_calls:
            return []
        # What was written before the first call is not an answer.
        pieces = [] if self._calls else [*self._reply.prose.withdraw(), *self._think(self._reply.text.raw.strip())]
        arguments = self._reply.text.take(delta.arguments)
        call = self._calls.get(delta.index)
        if call is None:
            if len(self._calls) >= MAX_CALLS:
                self._refused += bool(delta.name)
                return []
            tool_id = self._names.get(delta.name, delta.name)
            call = self._calls[delta.index] = _Call(len(self._calls), tool_id, self._limits.code_tools)
        return [*pieces, *call.feed(arguments)]

    def finish(
        self, reason: FinishReason = "stop", *, interrupted: bool = False
    ) -> tuple[list[DecisionPiece], Decision]:
        """End the reply; returns the last pieces, and the decision.

        `interrupted` means that the reply did not come to its end: a person stopped it, or its provider failed.
        """
        if not self._calls:
            return self._reply.finish(reason, interrupted=interrupted)
        pieces = [piece for call in self._calls.values() for piece in call.finish()]
        return pieces, self._decide(self._reply.text.find_stop(reason))

    def _think(self, text: str) -> list[DecisionPiece]:
        if not text:
            return []
        self._thinking.append(text)
        return [ThinkingText(text, 0)]

    def _decide(self, stopped_by: CutReason | None) -> Decision:
        actions: list[Action] = []
        programs: list[Program] = []
        problems: list[Problem] = []
        cut = explain_cut(stopped_by, self._limits)
        for call in self._calls.values():
            params = call.read_params(is_cut=cut is not None and call.instance == len(self._calls) - 1)
            if isinstance(params, str):
                why = Problem("not_json", params) if cut is None else cut
                sentence = f"The call to {call.tool_id[:80]!a} was not made. {why.sentence}"
                problems.append(Problem(why.kind, sentence, fatal=False, action_instance=call.instance))
                continue
            action = Action("call_tool", tool_call=ToolCall(call.tool_id, params))
            action, code = take_program(action, self._limits.code_tools)
            programs += [] if code is None else [Program(clean_program(code), len(actions))]
            actions.append(action)
        if self._refused:
            problems.append(build_calls_problem(self._refused))
        if not actions:
            problems = [replace(problem, fatal=True) for problem in problems]
        return Decision(
            self._reply.text.raw,
            tuple(actions),
            tuple(programs),
            beside="".join(self._thinking),
            problems=tuple(problems),
            stopped_by=stopped_by,
        )
