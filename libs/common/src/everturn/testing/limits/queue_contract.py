"""The contract of Queue as tests; a subclass or its module defines the fixtures `stage` and `queue`."""

from dataclasses import replace

from everturn.model.identity import Lane, Principal
from everturn.ports.limits.queue import Queue, QueueDepth
from everturn.testing.turns.stage import Stage


class QueueContract:
    """What every Queue keeps. Its tests share rows, so each looks at what it adds."""

    async def test_turns_that_wait_are_counted_by_tenant_and_lane(self, stage: Stage, queue: Queue) -> None:
        ann, ben = Principal("depth-a", "p", "ann"), Principal("depth-b", "p", "ben")
        before = await queue.load_depth("depth-a", Lane.REGISTERED)
        for principal in (ann, ann, ben):
            await replace(stage, principal=principal).say()

        after = await queue.load_depth("depth-a", Lane.REGISTERED)

        assert after == QueueDepth(before.waiting + 3, 2, before.tenants + 2)
        assert (await queue.load_depth("depth-a", Lane.PAID)).of_tenant == 0

    async def test_a_turn_that_runs_waits_no_longer(self, stage: Stage, queue: Queue) -> None:
        own = replace(stage, principal=Principal("depth-c", "p", "cat"))
        receipt = await own.say()
        before = await queue.load_depth("depth-c", Lane.REGISTERED)

        await stage.leases.try_claim(receipt.conversation_id)

        after = await queue.load_depth("depth-c", Lane.REGISTERED)
        assert (before.of_tenant, after.of_tenant) == (1, 0)
        assert after.waiting == before.waiting - 1
