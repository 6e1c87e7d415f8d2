"""The current state of a conversation, folded from its blocks: plans, signals and feedback."""

from collections.abc import Iterable

from everturn.core.ids import TurnId
from everturn.timeline.blocks import Block, EventBody, FeedbackBody, PlanBody, PlanHistoryBody, SignalBody
from everturn.timeline.plans import PlanSnapshot, PlanStatus

SHOWN_PLANS = 4


class PlanFold:
    """Folds one block after another. The result is the same with or without the blocks that the last history
    replaces."""

    def __init__(self) -> None:
        self._history: tuple[PlanSnapshot, ...] = ()
        self._changed: dict[str, PlanSnapshot] = {}

    def take(self, block: Block) -> None:
        match block.body:
            case PlanBody(plan=plan):
                self._changed.pop(plan.plan_id, None)
                self._changed[plan.plan_id] = plan
            case PlanHistoryBody(plans=plans):
                self._history = plans
            case _:
                """Not about plans."""

    def latest(self) -> tuple[PlanSnapshot, ...]:
        """The newest snapshot of every plan; the one that changed last is last."""
        latest: dict[str, PlanSnapshot] = {}
        for plan in (*self._history, *self._changed.values()):
            latest.pop(plan.plan_id, None)
            latest[plan.plan_id] = plan
        return tuple(latest.values())


def latest_plans(blocks: Iterable[Block]) -> tuple[PlanSnapshot, ...]:
    """The newest snapshot of every plan; the one that changed last is last."""
    fold = PlanFold()
    for block in blocks:
        fold.take(block)
    return fold.latest()


def current_plan(blocks: Iterable[Block]) -> PlanSnapshot | None:
    """The open plan that step marks apply to, if there is one."""
    return next((plan for plan in latest_plans(blocks) if plan.current and plan.status is PlanStatus.OPEN), None)


def open_plans(latest: Iterable[PlanSnapshot], turn_id: TurnId) -> tuple[PlanSnapshot, ...]:
    """The last open plans to show in a turn: the current one, and those this turn has changed."""
    plans = (plan for plan in latest if plan.status is PlanStatus.OPEN)
    return tuple(plan for plan in plans if plan.current or plan.last_turn_id == turn_id)[-SHOWN_PLANS:]


class Present:
    """Folds one block after another; the cost of a read does not grow with the blocks."""

    def __init__(self) -> None:
        self.turn_id = TurnId("")
        self.events: list[Block] = []
        """Signals and external events of the newest turn."""
        self.feedback: list[FeedbackBody] = []
        """Feedback in the newest turn about earlier ones."""
        self._plans = PlanFold()

    def extend(self, blocks: Iterable[Block]) -> None:
        for block in blocks:
            self._add(block)

    @property
    def open_plans(self) -> tuple[PlanSnapshot, ...]:
        """The last open plans to show: the current one, and those that the newest turn has changed."""
        return open_plans(self._plans.latest(), self.turn_id)

    def _add(self, block: Block) -> None:
        if block.turn_id != self.turn_id:
            self.turn_id = block.turn_id
            self.events, self.feedback = [], []
        self._plans.take(block)
        match block.body:
            case SignalBody() | EventBody():
                self.events.append(block)
            case FeedbackBody():
                self.feedback.append(block.body)
            case _:
                """Does not change the current state."""
