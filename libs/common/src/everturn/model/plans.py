"""Plans: snapshots of a lineage of steps. Every change is a new snapshot; the latest of a lineage is its state."""

from enum import StrEnum

from pydantic import BaseModel, ConfigDict

from everturn.model.ids import PlanId, TurnId


class StepStatus(StrEnum):
    """What became of a step."""

    PENDING = "pending"
    IN_PROGRESS = "in_progress"
    DONE = "done"
    FAILED = "failed"


class PlanStatus(StrEnum):
    """What became of a plan. OPEN ones are shown to the model."""

    OPEN = "open"
    COMPLETE = "complete"
    CLOSED = "closed"
    SUPERSEDED = "superseded"


class PlanStep(BaseModel):
    """One step; `n` counts from 1."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    n: int
    label: str
    status: StepStatus = StepStatus.PENDING


class PlanSnapshot(BaseModel):
    """The state of one plan after one change. Times are ISO 8601 in UTC."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    plan_id: PlanId
    steps: tuple[PlanStep, ...]
    status: PlanStatus
    current: bool
    """Whether step marks in notes apply to this plan."""
    origin_turn_id: TurnId
    last_turn_id: TurnId
    closed_ts: str | None = None
    superseded_ts: str | None = None
    snapshot_ref: str
