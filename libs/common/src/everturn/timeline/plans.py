"""Plans: snapshots of a lineage of steps. Every change is a new snapshot; the latest of a lineage is its state.

The changes are pure: they receive the latest snapshots and return those to append, in order. At most one plan is
current.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from everturn.core.api_model import ApiModel
from everturn.core.errors import Conflict, Invalid, NotFound
from everturn.core.ids import PlanId, TurnId
from everturn.core.open_values import OpenEnum
from everturn.core.refs import plan_ref

MAX_STEPS = 50
MAX_LABEL_CHARS = 300

_MARK_LINE = re.compile(r"[ \t]*([□…✓✗])[ \t]*(?:\[([0-9]{1,3})\]|([0-9]{1,3})[.:](?!\S))")
"""The dot or colon must end the number: `✓ 2.5 s` and `✓ 10:30` mark nothing."""


class StepStatus(OpenEnum):
    """What became of a step."""

    PENDING = "pending"
    IN_PROGRESS = "in_progress"
    DONE = "done"
    FAILED = "failed"

    @classmethod
    def fallback(cls) -> "StepStatus":
        """An unknown status leaves the step open."""
        return cls.PENDING


class PlanStatus(OpenEnum):
    """What became of a plan. OPEN ones are shown to the model."""

    OPEN = "open"
    COMPLETE = "complete"
    CLOSED = "closed"
    SUPERSEDED = "superseded"

    @classmethod
    def fallback(cls) -> "PlanStatus":
        """A plan of unknown status is not worked on."""
        return cls.CLOSED


class PlanStep(ApiModel):
    """One step; `n` counts from 1."""

    n: int
    """Its number, from 1."""
    label: str
    """What the step is about."""
    status: StepStatus = StepStatus.PENDING
    """How far the step is."""
    step_id: str | None = None
    """The id by which calls name the step that they belong to; absent in a plan that the model keeps by itself."""


class PlanSnapshot(ApiModel):
    """The state of one plan after one change. Times are ISO 8601 in UTC."""

    plan_id: PlanId
    """The id of the plan."""
    steps: tuple[PlanStep, ...]
    """The steps, in order."""
    status: PlanStatus
    """Whether the plan is still followed, and if not, how it ended."""
    current: bool
    """Whether it is the one that is followed now: step marks in notes apply to it."""
    origin_turn_id: TurnId
    """The turn that it comes from."""
    last_turn_id: TurnId
    """The turn that changed it last."""
    closed_ts: str | None = None
    """When it was closed, in ISO 8601 and UTC."""
    superseded_ts: str | None = None
    """When another plan replaced it, in ISO 8601 and UTC."""
    snapshot_ref: str
    """The reference of this state of the plan."""


MARKS = {
    StepStatus.PENDING: "□",
    StepStatus.IN_PROGRESS: "…",
    StepStatus.DONE: "✓",
    StepStatus.FAILED: "✗",
}
"""The sign of each step status, in notes and for the model."""

_STATUS_OF = {mark: status for status, mark in MARKS.items()}


@dataclass(frozen=True, slots=True)
class PlanMoment:
    """When a plan changes, and in which turn. `ts` is ISO 8601 in UTC."""

    turn_id: TurnId
    ts: str


def new_plan(
    plans: Sequence[PlanSnapshot], *, plan_id: PlanId, labels: Sequence[str], moment: PlanMoment
) -> tuple[PlanSnapshot, ...]:
    """Begin a plan and make it the current one."""
    begun = _begin(plan_id, labels, moment)
    return (*_demote(plans, moment), begun)


def replace_plan(
    plans: Sequence[PlanSnapshot], target: str, *, plan_id: PlanId, labels: Sequence[str], moment: PlanMoment
) -> tuple[PlanSnapshot, ...]:
    """Replace an open plan with a new one, which becomes the current one."""
    old, begun = _find_open(plans, target), _begin(plan_id, labels, moment)
    retired = _changed(old, moment, status=PlanStatus.SUPERSEDED, superseded_ts=moment.ts, current=False)
    others = [plan for plan in plans if plan.plan_id != target]
    return (*_demote(others, moment), retired, begun)


def activate_plan(plans: Sequence[PlanSnapshot], target: str, *, moment: PlanMoment) -> tuple[PlanSnapshot, ...]:
    """Make an open plan the current one. The target is checked before the present current plan is demoted."""
    plan = _find_open(plans, target)
    others = [other for other in plans if other.plan_id != target]
    return (*_demote(others, moment), _changed(plan, moment, current=True))


def close_plan(plans: Sequence[PlanSnapshot], target: str, *, moment: PlanMoment) -> tuple[PlanSnapshot, ...]:
    """End an open plan without a successor; no other plan becomes current."""
    plan = _find_open(plans, target)
    return (_changed(plan, moment, status=PlanStatus.CLOSED, closed_ts=moment.ts, current=False),)


def mark_steps(plan: PlanSnapshot, notes: str, *, moment: PlanMoment) -> PlanSnapshot | None:
    """Apply the step marks of notes to the current plan; None when they change nothing.

    A plan with every step done or failed is complete and no longer current.
    """
    marks = read_marks(notes)
    steps = tuple(step.model_copy(update={"status": marks.get(step.n, step.status)}) for step in plan.steps)
    if steps == plan.steps or not plan.current or plan.status is not PlanStatus.OPEN:
        return None
    complete = all(step.status in (StepStatus.DONE, StepStatus.FAILED) for step in steps)
    status = PlanStatus.COMPLETE if complete else PlanStatus.OPEN
    return _changed(plan, moment, steps=steps, status=status, current=not complete)


def read_marks(notes: str) -> dict[int, StepStatus]:
    """The marks at line starts, `✓ [2]`, `✓ 2.` or `✓ 2:`, by step number; the last one for a step counts.

    They can include numbers without a step; the caller ignores those.
    """
    matches = (_MARK_LINE.match(line) for line in notes.splitlines())
    return {int(match[2] or match[3]): _STATUS_OF[match[1]] for match in matches if match}


def build_ack(before: PlanSnapshot, after: PlanSnapshot) -> str:
    """The steps that changed, one a line, for a person to read."""
    changed = [step for old, step in zip(before.steps, after.steps, strict=True) if step != old]
    return "\n".join(render_step(step) for step in changed)


def render_step(step: PlanStep) -> str:
    """`✓ [2] label`."""
    return f"{MARKS[step.status]} [{step.n}] {step.label}"


def _begin(plan_id: PlanId, labels: Sequence[str], moment: PlanMoment) -> PlanSnapshot:
    cleaned = [" ".join(label.split()) for label in labels]
    if not 0 < len(cleaned) <= MAX_STEPS or not all(0 < len(label) <= MAX_LABEL_CHARS for label in cleaned):
        raise Invalid(f"A plan must have 1 to {MAX_STEPS} steps, each a line of 1 to {MAX_LABEL_CHARS} characters.")
    return PlanSnapshot(
        plan_id=plan_id,
        steps=tuple(PlanStep(n=n, label=label) for n, label in enumerate(cleaned, start=1)),
        status=PlanStatus.OPEN,
        current=True,
        origin_turn_id=moment.turn_id,
        last_turn_id=moment.turn_id,
        snapshot_ref=plan_ref(moment.turn_id, plan_id),
    )


def _find_open(plans: Sequence[PlanSnapshot], target: str) -> PlanSnapshot:
    found = next((plan for plan in plans if plan.plan_id == target), None)
    if found is None:
        raise NotFound(f"No plan has the id {target[:80]!a}.")
    if found.status is not PlanStatus.OPEN:
        raise Conflict(f"The plan {target} is {found.status.value}, not open.")
    return found


def _demote(plans: Sequence[PlanSnapshot], moment: PlanMoment) -> tuple[PlanSnapshot, ...]:
    return tuple(_changed(plan, moment, current=False) for plan in plans if plan.current)


def _changed(plan: PlanSnapshot, moment: PlanMoment, **changes: object) -> PlanSnapshot:
    ref = plan_ref(moment.turn_id, plan.plan_id)
    return plan.model_copy(update={**changes, "last_turn_id": moment.turn_id, "snapshot_ref": ref})
