"""The structured calls of a workflow: the plan at its beginning, and the judgement of each wave."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from chat_proc.agent.extra_calls import build_messages, build_question, call_for_turn, keep_request, shorten
from chat_proc.agent.generation import WaitingNotice
from chat_proc.agent.kit import LoopDependencies, TurnKit
from chat_proc.agent.prompt.system import add_instructions, load_topic
from chat_proc.agent.tool_selection import LOOP_TOOLS, render_entry
from chat_proc.models.calls import estimate_call
from chat_proc.models.roles import PLANNING
from chat_proc.models.structured import StructuredLimits
from chat_proc.turn.leased import LeasedTurn
from everturn.events.model import ChatPhase
from everturn.models.port import ModelRequest, PromptMessage
from everturn.timeline.blocks import Block, BlockType, PlannedStep, WorkflowBody
from everturn.timeline.inert import is_blank
from everturn.timeline.plans import MARKS, StepStatus
from everturn.timeline.rendering import block_source
from everturn.timeline.workflow import Workflow, order_steps
from everturn.turns.model import UsageEvent

MAX_PLANNED_STEPS = 20
"""Steps of one plan, and new ones of one replan."""
MAX_ALL_STEPS = 40
"""Steps of a turn, those that have ended included. A plan that clients are shown has at most 50."""
MAX_REPLANS = 3
"""Each one costs up to MAX_PLANNED_STEPS more; a plan that fails three times fails for a reason that remains."""
MAX_TASK_CHARS = 4_000
MAX_EXCERPT_CHARS = 12_000
"""How much of the earlier conversation the planner sees: it has to know what was said, not how it was found out. So its
request fits into any model's context, and a long conversation need not be summarized for it."""
MAX_SAID_CHARS = 2_000
"""How much of one message the excerpt has."""
MAX_REASON_CHARS = 2_000
MAX_JUDGED_RESULT_CHARS = 2_000
"""How much of a result the judging call sees: as much as a synthesis sees of the result of a tool."""
MAX_ALL_RESULTS_CHARS = 60_000
"""How much of all results together one request shows: about 15,000 tokens."""
PLAN_LIMITS = StructuredLimits(limit_s=120.0, max_output_tokens=8_192, max_reply_chars=100_000)
"""Twenty steps with their tasks take some thousand tokens, and models think before they plan."""

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,39}")
_STEPS: Final[Mapping[str, object]] = {
    "type": "array",
    "items": {
        "type": "object",
        "properties": {
            "id": {"type": "string"},
            "task": {"type": "string"},
            "depends_on": {"type": "array", "items": {"type": "string"}},
            "model_hint": {"type": ["string", "null"]},
            "tools": {"type": "array", "items": {"type": "string"}},
        },
        "required": ["id", "task"],
    },
}
PLAN_SCHEMA: Final[Mapping[str, object]] = {
    "type": "object",
    "properties": {"steps": _STEPS},
    "required": ["steps"],
}
JUDGEMENT_SCHEMA: Final[Mapping[str, object]] = {
    "type": "object",
    "properties": {
        "decision": {"type": "string", "enum": ["continue", "replan", "done"]},
        "reason": {"type": "string"},
        "steps": _STEPS,
    },
    "required": ["decision"],
}
_SAID: Final[Mapping[BlockType, str]] = {
    BlockType.USER_PROMPT: "User",
    BlockType.USER_FOLLOWUP: "User",
    BlockType.USER_STEER: "User",
    BlockType.COMPLETION: "Assistant",
    BlockType.RANGE_SUMMARY: "Summary of earlier turns",
}


class Planner:
    """Plans the steps of turns and judges their results; keeps no state of them."""

    def __init__(self, kit: TurnKit, parts: LoopDependencies) -> None:
        self._kit = kit
        self._tracing = parts.tracing

    async def plan(self, turn: LeasedTurn, round_number: int) -> WorkflowBody | None:
        """The plan; `unplanned` if the model fails or sees no steps in the message. None if a steer or a cancel ended
        the call."""

        def read_plan(raw: Mapping[str, Any]) -> WorkflowBody:
            steps = self._read_steps(raw["steps"], Workflow())
            return WorkflowBody(decision="plan" if steps else "unplanned", steps=steps)

        messages, default = self._build_plan_request(turn), WorkflowBody(decision="unplanned")
        return await self._ask(turn, round_number, messages, PLAN_SCHEMA, read_plan, default)

    async def judge(self, turn: LeasedTurn, round_number: int, workflow: Workflow) -> WorkflowBody | None:
        """What comes after a wave; to continue if the model fails. None if a steer or a cancel ended the call."""

        def read_judgement(raw: Mapping[str, Any]) -> WorkflowBody:
            reason = str(raw.get("reason", ""))[:MAX_REASON_CHARS]
            if raw["decision"] != "replan":
                return WorkflowBody(decision=raw["decision"], reason=reason)
            if workflow.replans >= MAX_REPLANS:
                raise ValueError(f"the plan was changed {MAX_REPLANS} times; choose continue or done")
            ended = tuple(step for step in workflow.steps if step.id in workflow.results)
            added = self._read_steps(raw.get("steps", []), workflow)
            if len(ended) + len(added) > MAX_ALL_STEPS:
                raise ValueError(f"a turn may have {MAX_ALL_STEPS} steps; {len(ended)} have ended")
            return WorkflowBody(decision="replan", reason=reason, steps=(*ended, *added))

        messages, default = _build_judge_request(turn, workflow), WorkflowBody(decision="continue")
        return await self._ask(turn, round_number, messages, JUDGEMENT_SCHEMA, read_judgement, default)

    def estimate_lost_call(self, turn: LeasedTurn, workflow: Workflow) -> UsageEvent:
        """Usage of the next call, if it was lost with its worker: its input was paid, its output is unknown."""
        messages = _build_judge_request(turn, workflow) if workflow.is_planned else self._build_plan_request(turn)
        traits, request = self._kit.model.traits, ModelRequest(messages, PLAN_LIMITS.max_output_tokens)
        return estimate_call(traits, PLANNING, request, self._kit.ratios.of(traits.ledger_name))

    def _build_plan_request(self, turn: LeasedTurn) -> tuple[PromptMessage, ...]:
        sections = {
            "CONVERSATION": build_excerpt(turn.blocks[: turn.turn_start]),
            "MESSAGE": build_question(turn.turn_blocks),
            "TOOLS": "\n".join(render_entry(spec) for spec in self._kit.catalog.specs if _is_choosable(spec.tool_id)),
            "MODELS": "\n".join(sorted(self._kit.hinted)),
        }
        prompt = load_topic("dag_plan").replace("{max_steps}", str(MAX_PLANNED_STEPS))
        return build_messages(add_instructions(prompt, self._kit.instructions), sections)

    async def _ask(
        self,
        turn: LeasedTurn,
        round_number: int,
        messages: tuple[PromptMessage, ...],
        schema: Mapping[str, object],
        parse: Callable[[Mapping[str, Any]], WorkflowBody],
        default: WorkflowBody,
    ) -> WorkflowBody | None:
        def keep(request: ModelRequest) -> None:
            keep_request(turn, self._kit, self._kit.model.traits, request, round_number)

        left_s = max(1.0, self._kit.limits.wall_time_s - turn.spent.leased_s)
        limits = replace(PLAN_LIMITS, limit_s=min(PLAN_LIMITS.limit_s, left_s))
        turn.emit(ChatPhase(phase="model_called"), round_number)
        with WaitingNotice(turn, round_number) as waiting:
            decided = await call_for_turn(
                turn,
                self._kit.model,
                PLANNING,
                messages,
                schema,
                parse_fn=parse,
                default_value=default,
                limits=limits,
                tracing=self._tracing,
                note_request=keep,
                note_piece=waiting.note,
            )
        if decided is None:
            # Nothing of the call is committed: clients drop it, too.
            turn.rewind()
        else:
            turn.emit(ChatPhase(phase="model_thought", thinking=""), round_number)
        return decided

    def _read_steps(self, raw: Sequence[Mapping[str, Any]], workflow: Workflow) -> tuple[PlannedStep, ...]:
        """The steps in an order in which each follows those that it depends on. Raises ValueError, in words for the
        model."""
        if len(raw) > MAX_PLANNED_STEPS:
            raise ValueError(f"a plan may have {MAX_PLANNED_STEPS} steps, not {len(raw)}")
        return order_steps([self._read_step(each) for each in raw], workflow.results)

    def _read_step(self, raw: Mapping[str, Any]) -> PlannedStep:
        step_id, task = raw["id"], raw["task"].strip()
        if not _ID.fullmatch(step_id):
            raise ValueError(f"the id {step_id[:80]!r} is not a short name of letters, digits, - and _")
        if is_blank(task) or len(task) > MAX_TASK_CHARS:
            raise ValueError(f"the task of step {step_id!r} is empty or longer than {MAX_TASK_CHARS} characters")
        hint = raw.get("model_hint")
        known = [name for name in raw.get("tools", []) if self._kit.catalog.try_spec(name)]
        return PlannedStep(
            id=step_id,
            task=task,
            depends_on=tuple(dict.fromkeys(raw.get("depends_on", []))),
            model_hint=hint if hint in self._kit.hinted else None,
            tools=tuple(dict.fromkeys(filter(_is_choosable, known))),
        )


def build_excerpt(earlier: Sequence[Block]) -> str:
    """What was said at the end of the earlier turns, with refs, oldest first."""
    entries: list[str] = []
    left = MAX_EXCERPT_CHARS
    for block in reversed(earlier):
        if (who := _SAID.get(block.type)) is None:
            continue
        shown = shorten(block_source(block), MAX_SAID_CHARS)
        left -= len(shown)
        if left < 0:
            break
        entries.append(f"{who} ({block.ref}): {shown}")
    return "\n\n".join(reversed(entries))


def build_results(workflow: Workflow, *, result_chars: int) -> str:
    """The results so far, in the order of the plan, each with the beginning of its text."""
    shown = ((step.id, workflow.results.get(step.id)) for step in workflow.steps)
    lines = [
        f"{step_id} ({result.status}): {cut_result(workflow, result.text, result_chars)}"
        for step_id, result in shown
        if result is not None
    ]
    return "\n\n".join(lines) or "none"


def cut_result(workflow: Workflow, text: str, result_chars: int) -> str:
    """The beginning of one result: shorter if there are many."""
    return shorten(text, min(result_chars, MAX_ALL_RESULTS_CHARS // max(1, len(workflow.results))))


def _render_step(step: PlannedStep, workflow: Workflow) -> str:
    result = workflow.results.get(step.id)
    status = {None: StepStatus.PENDING, "ok": StepStatus.DONE}.get(result and result.status, StepStatus.FAILED)
    needs = f" (needs {', '.join(step.depends_on)})" if step.depends_on else ""
    return f"{MARKS[status]} {step.id}{needs}: {step.task}"


def _is_choosable(tool_id: str) -> bool:
    """Whether a plan may give the tool to a step; the loop's own tools are always offered."""
    return not tool_id.startswith(LOOP_TOOLS)


def _build_judge_request(turn: LeasedTurn, workflow: Workflow) -> tuple[PromptMessage, ...]:
    sections = {
        "MESSAGES": build_question(turn.turn_blocks),
        "PLAN": "\n".join(_render_step(step, workflow) for step in workflow.steps),
        "RESULTS": build_results(workflow, result_chars=MAX_JUDGED_RESULT_CHARS),
    }
    return build_messages(load_topic("dag_analysis"), sections)
