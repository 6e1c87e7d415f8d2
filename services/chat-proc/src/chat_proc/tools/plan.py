"""`react.plan`: creates, replaces, activates or closes a plan. Progress is reported by marks in notes, not here."""

from collections.abc import Sequence
from importlib.resources import files
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from chat_proc.catalog.tool import Record, ToolCall, ToolOutcome, ToolSpec
from chat_proc.timeline.present import latest_plans
from everturn.core.errors import Conflict, Invalid, NotFound
from everturn.core.ids import CallId, PlanId
from everturn.timeline.blocks import BlockType, PlanBody
from everturn.timeline.plans import (
    PlanMoment,
    PlanSnapshot,
    PlanStatus,
    activate_plan,
    close_plan,
    new_plan,
    replace_plan,
)
from everturn.timeline.rendering import render_plan
from everturn.turns.model import Effect


class PlanParams(BaseModel):
    """`plan_id` for all modes but new, `steps` for new and replace."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    mode: Literal["new", "replace", "activate", "close"] = "new"
    plan_id: str | None = Field(default=None, max_length=120)
    steps: list[str] | None = None

    @model_validator(mode="after")
    def check_mode(self) -> "PlanParams":
        if self.mode in ("new", "replace") and not self.steps:
            raise ValueError(f'mode "{self.mode}" needs steps, a list of short lines')
        if self.mode != "new" and not self.plan_id:
            raise ValueError(f'mode "{self.mode}" needs the plan_id of an open plan')
        return self


class PlanTool:
    """Pure except for the records that it returns; the plan of a repeated call has the same id."""

    def __init__(self) -> None:
        self.spec = ToolSpec(
            tool_id="react.plan",
            summary="Create, replace, activate or close a plan of steps that the user can follow.",
            guide=files("chat_proc.tools").joinpath("plan.md").read_text(encoding="utf-8"),
            params=PlanParams,
            effect=Effect.IDEMPOTENT,
            strategy="neutral",
        )

    async def run(self, call: ToolCall) -> ToolOutcome:
        params = PlanParams.model_validate(call.params)
        plans = latest_plans(call.context.blocks)
        try:
            changed = _change(params, plans, call)
        except (Invalid, NotFound, Conflict) as refused:
            return ToolOutcome("error", f"No plan was changed: {refused.detail} {_hint(plans)}")
        records = tuple(Record(BlockType.PLAN, plan.snapshot_ref, PlanBody(plan=plan)) for plan in changed)
        return ToolOutcome("ok", _describe(params.mode, changed[-1]), records=records)


def derive_plan_id(call_id: CallId) -> PlanId:
    """The id of the plan that a call begins: the call's own, with another prefix."""
    return PlanId("plan_" + call_id.removeprefix("call_"))


def _change(params: PlanParams, plans: Sequence[PlanSnapshot], call: ToolCall) -> tuple[PlanSnapshot, ...]:
    moment = PlanMoment(call.context.turn_id, call.context.now)
    plan_id, target, labels = derive_plan_id(call.call_id), params.plan_id or "", params.steps or []
    match params.mode:
        case "new":
            return new_plan(plans, plan_id=plan_id, labels=labels, moment=moment)
        case "replace":
            return replace_plan(plans, target, plan_id=plan_id, labels=labels, moment=moment)
        case "activate":
            return activate_plan(plans, target, moment=moment)
        case "close":
            return close_plan(plans, target, moment=moment)


def _describe(mode: str, plan: PlanSnapshot) -> str:
    done = {"new": "created", "replace": "created, replacing the other", "activate": "active again", "close": "closed"}
    return f"The plan is {done[mode]}.\n{render_plan(plan)}"


def _hint(plans: Sequence[PlanSnapshot]) -> str:
    still_open = [plan.plan_id for plan in plans if plan.status is PlanStatus.OPEN][-4:]
    return f"Open plans: {', '.join(still_open)}." if still_open else "No plan is open."
