from turn_harness.harness import Bench

from chat_proc.worker.ringing import Ringer
from everturn.core.errors import Unavailable
from everturn.core.identity import Lane
from everturn.core.ids import ConversationId
from everturn.turns.ports import Ring
from everturn_testing.turns.reading import NoSweeps


class WaitingElsewhere(NoSweeps):
    """One turn of the tenant waits for a place on its lane; or the database is away."""

    def __init__(self, *, away: bool = False) -> None:
        self.away = away

    async def claim_next_doorbells(self, conversation_id: ConversationId) -> tuple[Ring, ...]:
        if self.away:
            raise Unavailable("Postgres")
        return (Ring(ConversationId("conv_next"), Lane.PAID),)


async def test_when_a_turn_is_claimed_the_next_one_of_its_tenant_is_rung() -> None:
    bench = Bench()

    await Ringer(bench.doorbells, WaitingElsewhere()).ring_next(bench.conversation_id)

    assert await bench.doorbells.next_ring([Lane.PAID], timeout_s=0.01) == "conv_next"


async def test_a_turn_continues_if_the_next_doorbell_fails() -> None:
    bench = Bench()

    await Ringer(bench.doorbells, WaitingElsewhere(away=True)).ring_next(bench.conversation_id)

    assert await bench.doorbells.next_ring([Lane.PAID], timeout_s=0.01) is None
