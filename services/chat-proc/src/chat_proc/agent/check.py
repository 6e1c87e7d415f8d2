"""Checks one decision: tools to use, an answer to end with, or what the model must correct. Pure.

`ToolRegistry` provides the tools, arguments and effects that exist.
"""

from dataclasses import dataclass
from typing import Literal

from pydantic import BaseModel

from chat_proc.catalog.tool import ToolRegistry, ToolSpec
from chat_proc.channels.decisions import Action, Decision, Problem
from chat_proc.channels.decisions import ToolCall as DecidedCall
from everturn.core.errors import Invalid
from everturn.timeline.inert import is_blank
from everturn.timeline.turns import CutReason

# The loop's interface to tools: list them, check arguments, call one. The registry implements it.


MAX_SENTENCES = 3
"""Maximum problems named in one notice; more would hide the first."""


@dataclass(frozen=True, slots=True)
class UseTool:
    """An accepted tool call."""

    spec: ToolSpec
    params: BaseModel
    raw_params: dict[str, object]
    code: str | None
    notes: str


@dataclass(frozen=True, slots=True)
class GiveAnswer:
    """An accepted end of the turn. `shown` is the part of `text` that clients saw; `cut_reason` says why it stops
    early."""

    text: str
    shown: str
    followups: tuple[str, ...] = ()
    used_sids: tuple[int, ...] = ()
    summary: str | None = None
    notes: str = ""
    cut_reason: CutReason | None = None


@dataclass(frozen=True, slots=True)
class Repair:
    """A reply or an action that can't be used, and the sentences that explain it to the model."""

    code: str
    sentences: str


@dataclass(frozen=True, slots=True)
class Work:
    """The accepted items of a reply, in the order in which they were written. At least one item, at most one answer.

    `refused` are the actions that are not run; `remarks` are the other problems.
    """

    items: tuple[UseTool | GiveAnswer, ...]
    refused: tuple[Repair, ...] = ()
    remarks: Repair | None = None

    @property
    def calls(self) -> tuple[UseTool, ...]:
        return tuple(item for item in self.items if isinstance(item, UseTool))

    @property
    def answer(self) -> GiveAnswer | None:
        """The answer, which waits until the calls have run."""
        return next((item for item in self.items if isinstance(item, GiveAnswer)), None)


Verdict = Work | Repair


def check_decision(decision: Decision, shown_answer: str, catalog: ToolRegistry) -> Verdict:
    """Decide what to do with a reply. An answer that the person has seen is kept, even if the rest of the reply is
    wrong."""
    # Whitespace does not count as seen.
    shown_answer = "" if is_blank(shown_answer) else shown_answer
    if problems := decision.fatal_problems:
        return Work((keep_shown(decision, shown_answer),)) if shown_answer else _combine(problems)
    checked = [_check_action(decision, index, shown_answer, catalog) for index in range(len(decision.actions))]
    items = [item for item in checked if not isinstance(item, Repair)]
    refused = [item for item in checked if isinstance(item, Repair)]
    if shown_answer and not any(isinstance(item, GiveAnswer) for item in items):
        items.append(keep_shown(decision, shown_answer))
    if not items:
        return refused[0] if refused else Repair("no_action", "The reply has no action. Write an action channel.")
    siblings = [Repair(problem.kind, problem.sentence) for problem in _remarks(decision, of="actions")]
    siblings += [Repair(repair.code, f"An action was not run. {repair.sentences}") for repair in refused]
    remarks = _remarks(decision, of="reply")
    return Work(tuple(items), tuple(siblings), _combine(remarks) if remarks else None)


def _check_action(decision: Decision, index: int, shown: str, catalog: ToolRegistry) -> UseTool | GiveAnswer | Repair:
    action = decision.actions[index]
    if action.tool_call is None:
        return _accept_answer(decision, action, shown)
    code = next((program.text for program in decision.programs if program.for_action in (index, None)), None)
    return _check_call(action.notes, action.tool_call, code, catalog)


def _combine(problems: tuple[Problem, ...]) -> Repair:
    return Repair(problems[0].kind, " ".join(problem.sentence for problem in problems[:MAX_SENTENCES]))


def _remarks(decision: Decision, *, of: Literal["actions", "reply"]) -> tuple[Problem, ...]:
    """Problems that leave the reply usable: those of refused actions, or of the reply as a whole."""
    return tuple(problem for problem in decision.problems if (problem.action_instance is None) == (of == "reply"))


def keep_shown(decision: Decision, shown: str) -> GiveAnswer:
    """The part of the answer that the person has seen."""
    raw = decision.answer.raw if decision.answer else shown
    used_sids = decision.answer.used_sids if decision.answer else ()
    return GiveAnswer(raw, shown, used_sids=used_sids, cut_reason=decision.cut_reason)


def _accept_answer(decision: Decision, action: Action, shown: str) -> GiveAnswer | Repair:
    text = action.final_answer or ""
    if is_blank(text):
        return Repair("missing_field", f"An action `{action.action}` needs a final_answer that is not empty.")
    return GiveAnswer(
        text=text,
        shown=shown or text,
        followups=action.suggested_followups or (),
        used_sids=decision.answer.used_sids if decision.answer else (),
        summary=decision.summary,
        notes=action.notes,
    )


def _check_call(notes: str, call: DecidedCall, code: str | None, catalog: ToolRegistry) -> UseTool | Repair:
    tool_id, raw_params = call.tool_id, dict(call.params)
    try:
        spec = catalog.spec(tool_id)
        params = catalog.check_params(tool_id, raw_params)
    except Invalid as refused:
        return Repair("bad_tool_call", refused.detail)
    if spec.takes_code and not (code or "").strip():
        return Repair("call_without_code", f"{tool_id} runs the program of the code channel, and the reply has none.")
    return UseTool(spec, params, raw_params, code if spec.takes_code else None, notes)
