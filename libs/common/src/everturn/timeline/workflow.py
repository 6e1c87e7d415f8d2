"""The steps of a turn whose workflow is `dag`: what is planned, what has begun, what has ended, and what comes next.

All of it is folded from the turn's blocks, so any worker continues where another stopped. Steps run in waves: a wave
consists of the steps whose dependencies had results when the previous judgement was made.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum

from everturn.core.ids import PlanId, TurnId
from everturn.timeline.blocks import (
    Block,
    BlockDraft,
    EventBody,
    PlannedStep,
    RoundStartBody,
    SignalBody,
    StepResultBody,
    WorkflowBody,
)
from everturn.timeline.plans import MAX_LABEL_CHARS, PlanSnapshot, PlanStatus, PlanStep, StepStatus

_STATUS = {"ok": StepStatus.DONE, "failed": StepStatus.FAILED, "cancelled": StepStatus.FAILED}


class Phase(Enum):
    """What a turn with this workflow does next."""

    PLAN = "plan"
    LOOP = "loop"
    """It has no steps: an ordinary loop answers."""
    RUN = "run"
    """Steps of the current wave have no result."""
    ANALYZE = "analyze"
    """A wave or a new message has to be judged."""
    ANSWER = "answer"


@dataclass(slots=True)
class Workflow:
    """The workflow after some blocks of a turn; take them in order."""

    steps: tuple[PlannedStep, ...] = ()
    """In the order of the plan: each after those that it depends on."""
    wave: tuple[str, ...] = ()
    """The steps of the last wave that was decided on."""
    results: dict[str, StepResultBody] = field(default_factory=dict[str, StepResultBody])
    begun: dict[str, None] = field(default_factory=dict[str, None])
    """The steps that have a round."""
    replans: int = 0
    _decision: str | None = None
    _has_result: bool = False
    """Whether a step has ended since the last decision."""
    _has_message: bool = False
    """Whether a message has come since then. It is judged before more steps begin."""
    _has_rounds: bool = False
    _turn_id: TurnId | None = None
    _ref: str = ""

    def take(self, blocks: Iterable[Block | BlockDraft]) -> "Workflow":
        """Take the next blocks, or drafts that are about to be written."""
        for block in blocks:
            self._take(block)
        return self

    @property
    def is_planned(self) -> bool:
        """Whether it was decided what steps the turn has, or that it has none."""
        return self._decision is not None

    @property
    def running(self) -> tuple[str, ...]:
        """The steps that have begun and have no result."""
        return tuple(step for step in self.begun if step not in self.results)

    @property
    def unfinished(self) -> tuple[PlannedStep, ...]:
        """The same as steps."""
        return tuple(step for step in self.steps if step.id in self.running)

    @property
    def due(self) -> tuple[PlannedStep, ...]:
        """The steps of the current wave without a result, and others that have begun."""
        wanted = {*self.wave, *self.running} - set(self.results)
        return tuple(step for step in self.steps if step.id in wanted)

    @property
    def left(self) -> tuple[PlannedStep, ...]:
        """All steps without a result."""
        return tuple(step for step in self.steps if step.id not in self.results)

    def find_phase(self, *, is_finalizing: bool = False) -> Phase:
        """What comes next. With `is_finalizing` no more steps begin: a steer came last."""
        if self._decision is None:
            # A turn that another worker began as a plain loop stays one. After a steer there is nothing to plan.
            return Phase.LOOP if self._has_rounds or is_finalizing else Phase.PLAN
        if self._decision == "unplanned":
            return Phase.LOOP
        if self.running:
            return Phase.RUN
        if is_finalizing:
            return Phase.ANSWER
        if self._has_message:
            return Phase.ANALYZE
        if self._decision != "done" and self.due:
            return Phase.RUN
        return Phase.ANALYZE if self._has_result else Phase.ANSWER

    def build_snapshot(self) -> PlanSnapshot | None:
        """The plan as clients see it; None if there are no steps. Step marks in notes do not apply to it."""
        turn_id = self._turn_id
        if not self.steps or turn_id is None:
            return None
        is_complete = self._decision == "done" or not self.left
        return PlanSnapshot(
            plan_id=PlanId("plan_" + turn_id.removeprefix("turn_")),
            steps=tuple(
                PlanStep(n=n, label=build_label(step), status=self._find_status(step.id), step_id=step.id)
                for n, step in enumerate(self.steps, start=1)
            ),
            status=PlanStatus.COMPLETE if is_complete else PlanStatus.OPEN,
            current=False,
            origin_turn_id=turn_id,
            last_turn_id=turn_id,
            snapshot_ref=self._ref,
        )

    def _find_status(self, step_id: str) -> StepStatus:
        if (result := self.results.get(step_id)) is not None:
            return _STATUS[result.status]
        return StepStatus.IN_PROGRESS if step_id in self.begun else StepStatus.PENDING

    def _take(self, block: Block | BlockDraft) -> None:
        match block.body:
            case RoundStartBody(lane=lane) if lane:
                self.begun.setdefault(lane)
            case WorkflowBody() as body:
                self._turn_id, self._ref = block.turn_id, block.ref
                self._decide(body)
            case StepResultBody() as result:
                self.results[result.step] = result
                self._has_result = True
            case SignalBody():
                self._has_message = True
            case EventBody(reactive=True) if block.round > 0:
                self._has_message = True
            case _:
                self._has_rounds = self._has_rounds or block.type.traits.is_decision

    def _decide(self, body: WorkflowBody) -> None:
        self._decision, self._has_result, self._has_message = body.decision, False, False
        self.replans += body.decision == "replan"
        if body.decision in ("plan", "replan"):
            self.steps = body.steps
        self.wave = tuple(step.id for step in self.left if self.results.keys() >= set(step.depends_on))


def fold_workflow(blocks: Iterable[Block | BlockDraft]) -> Workflow:
    """The workflow after these blocks of one turn."""
    return Workflow().take(blocks)


def order_steps(steps: Iterable[PlannedStep], ended: Mapping[str, StepResultBody]) -> tuple[PlannedStep, ...]:
    """The steps, each after those that it depends on, otherwise in the given order; `ended` are earlier steps. Raises
    ValueError if an id occurs twice, or a dependency is unknown or circular."""
    left = list(steps)
    ids = [step.id for step in left]
    if twice := next((step_id for n, step_id in enumerate(ids) if step_id in ids[:n] or step_id in ended), None):
        raise ValueError(f"the id {twice!r} is used for two steps")
    for step in left:
        if unknown := next((each for each in step.depends_on if each not in ids and each not in ended), None):
            raise ValueError(f"step {step.id!r} depends on {unknown!r}, which is not a step")
    ordered: list[PlannedStep] = []
    known = set(ended)
    while left:
        ready = next((step for step in left if known.issuperset(step.depends_on)), None)
        if ready is None:
            raise ValueError(f"the steps {', '.join(step.id for step in left)} depend on each other in a circle")
        left.remove(ready)
        ordered.append(ready)
        known.add(ready.id)
    return tuple(ordered)


def build_label(step: PlannedStep) -> str:
    """The task of a step in one line."""
    label = " ".join(step.task.split())
    return label if len(label) <= MAX_LABEL_CHARS else f"{label[: MAX_LABEL_CHARS - 1]}…"
