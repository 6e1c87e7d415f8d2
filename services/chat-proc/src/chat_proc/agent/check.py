"""Judges one decision: a tool to use, an answer to end with, or what the model must mend. Pure."""

from dataclasses import dataclass

from pydantic import BaseModel

from chat_proc.agent.catalog import ToolCatalog
from everturn.errors import Invalid
from everturn.model.llm.decisions import Action, Decision
from everturn.model.llm.decisions import ToolCall as DecidedCall
from everturn.ports.tool import ToolSpec

MAX_SENTENCES = 3
"""Problems named in one notice; more would hide the first."""


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
    """An accepted end of the turn. `shown` is what clients saw of `text`."""

    text: str
    shown: str
    followups: tuple[str, ...] = ()
    used_sids: tuple[int, ...] = ()
    summary: str | None = None
    notes: str = ""


@dataclass(frozen=True, slots=True)
class Repair:
    """A reply that can't be used, and the sentences that tell the model why."""

    code: str
    sentences: str


Verdict = UseTool | GiveAnswer | Repair


def check_decision(decision: Decision, shown_answer: str, catalog: ToolCatalog) -> Verdict:
    """Choose what to do with a reply. An answer the person has seen is kept, whatever else is wrong with the reply."""
    action = decision.actions[0] if decision.actions else None
    problems = decision.fatal_problems
    if (problems or action is None) and shown_answer:
        return keep_shown(decision, shown_answer)
    if problems:
        return Repair(problems[0].kind, " ".join(problem.sentence for problem in problems[:MAX_SENTENCES]))
    if action is None:
        return Repair("no_action", "The reply has no action. Write exactly one action channel.")
    if action.tool_call is not None:
        return _check_call(decision, action.notes, action.tool_call, catalog)
    return _accept_answer(decision, action, shown_answer)


def keep_shown(decision: Decision, shown: str) -> GiveAnswer:
    """An answer as far as the person has seen it."""
    raw = decision.answer.raw if decision.answer else shown
    return GiveAnswer(raw, shown, used_sids=decision.answer.used_sids if decision.answer else ())


def _accept_answer(decision: Decision, action: Action, shown: str) -> GiveAnswer | Repair:
    text = action.final_answer or ""
    if not text.strip():
        return Repair("missing_field", f"An action `{action.action}` needs a final_answer that is not empty.")
    return GiveAnswer(
        text=text,
        shown=shown or text,
        followups=action.suggested_followups or (),
        used_sids=decision.answer.used_sids if decision.answer else (),
        summary=decision.summary,
        notes=action.notes,
    )


def _check_call(decision: Decision, notes: str, call: DecidedCall, catalog: ToolCatalog) -> UseTool | Repair:
    tool_id, raw_params = call.tool_id, dict(call.params)
    try:
        spec = catalog.spec(tool_id)
        params = catalog.check_params(tool_id, raw_params)
    except Invalid as refused:
        return Repair("bad_tool_call", refused.detail)
    code = next((program.text for program in decision.programs if program.for_action in (0, None)), None)
    if spec.takes_code and not (code or "").strip():
        return Repair("call_without_code", f"{tool_id} runs the program of the code channel, and the reply has none.")
    return UseTool(spec, params, raw_params, code if spec.takes_code else None, notes)
