"""The plans of a conversation, folded from its blocks."""

from collections.abc import Iterable

from everturn.model.block_bodies import PlanBody, PlanHistoryBody
from everturn.model.blocks import Block
from everturn.model.ids import TurnId
from everturn.model.plans import PlanSnapshot, PlanStatus

SHOWN_PLANS = 4


class PlanFold:
    """Takes one block after another. The same whether the blocks that the last history stands for came or not."""

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
                """Says nothing of plans."""

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
