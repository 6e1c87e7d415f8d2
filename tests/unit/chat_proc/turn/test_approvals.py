"""A turn waits for a person without being held up by a database that is away for a moment."""

from datetime import datetime

from turn_harness.harness import Bench
from turn_harness.replies import answer, call
from turn_harness.tools import DemoTool

from everturn.core.errors import Unavailable
from everturn.core.identity import Principal
from everturn.core.ids import TurnId
from everturn.core.retry import RetryPolicy
from everturn.timeline.turns import TurnStatus
from everturn.turns.model import Approval, Lease
from everturn_testing.in_memory_platform import MemoryPlatform
from everturn_testing.turns.approvals import MemoryApprovals


class ApprovalsBehindABrokenLink(MemoryApprovals):
    """Of each call the first answer is lost, after it took effect."""

    def __init__(self, platform: MemoryPlatform, owner: str) -> None:
        super().__init__(platform, owner=owner)
        self.lost: set[str] = set()

    async def load_deadline(self, *, timeout_s: float) -> datetime:
        deadline = await super().load_deadline(timeout_s=timeout_s)
        self._lose("load_deadline")
        return deadline

    async def load_of_turn(self, principal: Principal, turn_id: TurnId) -> tuple[Approval, ...]:
        rows = await super().load_of_turn(principal, turn_id)
        self._lose("load_of_turn")
        return rows

    async def try_park(self, lease: Lease) -> bool:
        parked = await super().try_park(lease)
        self._lose("try_park")
        return parked

    def _lose(self, call_name: str) -> None:
        if call_name not in self.lost:
            self.lost.add(call_name)
            raise Unavailable("Postgres")


def build() -> Bench:
    send = DemoTool("demo.send", requires_approval=True)
    return Bench(call("demo.send", {"text": "x"}), answer("Done."), tools=[send])


async def test_a_turn_is_parked_although_the_answers_of_the_database_are_lost() -> None:
    bench = build()
    await bench.say("Send it.")
    worker = bench.hire()
    approvals = ApprovalsBehindABrokenLink(bench.platform, "worker-1")
    worker.change(approvals=approvals, retries=RetryPolicy((0.0,)))

    assert await worker.run_one()

    assert approvals.lost == {"load_deadline", "load_of_turn", "try_park"}
    assert bench.turn_rows[0].status is TurnStatus.WAITING
    assert bench.platform.conversations[bench.conversation_id].lease_owner is None
