"""A signal is edited or retracted while a worker applies it: exactly one of the two happens, in either order."""

import asyncio
from collections.abc import Awaitable, Sequence
from typing import Any

import pytest

from everturn.core.errors import Conflict
from everturn.core.ids import ConversationId, SignalId
from everturn.timeline.blocks import SignalBody
from everturn.timeline.turns import Signal, SignalKind, SignalState
from everturn.turns.model import Claim, Promotion, SignalChange
from everturn.turns.ports import InboxMoved
from everturn_testing.database_roles import Roles
from everturn_testing.turns.harness import ANN, Harness, closing, commit, write

WAS, EDITED = "as it was", "as edited"
ROUNDS = 15


class Said:
    """A followup into a running turn, and the calls that change it."""

    def __init__(self, harness: Harness, claim: Claim, signal_id: SignalId) -> None:
        self.harness = harness
        self.claim = claim
        self.signal_id = signal_id
        self.conversation_id: ConversationId = claim.lease.conversation_id

    async def edit(self) -> Signal:
        return await self.harness.inbox.save_signal_text(ANN, self.conversation_id, self.signal_id, EDITED)

    async def retract(self) -> Signal:
        return await self.harness.inbox.retract_signal(ANN, self.conversation_id, self.signal_id)

    async def apply(self, text: str = WAS) -> int:
        """The commit of a round that read the signal with this text."""
        blocks = write(self.claim, SignalBody(signal_id=self.signal_id, text=text))
        change = SignalChange(self.signal_id, SignalState.APPLIED, round=1)
        return await self.harness.timelines.commit(self.claim.lease, commit(self.claim, blocks, change))

    async def promote(self) -> int:
        """The commit that ends the turn after reading the unedited signal."""
        promotion = Promotion((self.signal_id,), self.harness.ids.turn(), WAS)
        seen = self.claim.inbox_seq + 1
        return await self.harness.timelines.commit(
            self.claim.lease, closing(self.claim, seen_inbox=seen, promote=promotion)
        )

    async def load(self) -> Signal:
        return await self.harness.inbox.load_signal(ANN, self.conversation_id, self.signal_id)

    async def load_applied(self) -> list[str]:
        """The texts on the timeline."""
        blocks = await self.harness.timelines.load_recent_blocks(ANN, self.conversation_id)
        return [block.body.text for block in blocks if isinstance(block.body, SignalBody)]


async def say(harness: Harness) -> Said:
    claim = await harness.start_turn()
    receipt = await harness.signal(claim.lease.conversation_id, SignalKind.FOLLOWUP, WAS)
    assert receipt.signal_id is not None
    return Said(harness, claim, receipt.signal_id)


async def run_in_order(roles: Roles, said: Said, works: Sequence[Awaitable[Any]]) -> list[Any]:
    """The results of calls that queued up for the conversation's row while it was locked."""
    holding = roles.superuser.transaction()
    await holding.start()
    await roles.superuser.execute("SELECT FROM conversation WHERE id = $1 FOR UPDATE", said.conversation_id)
    tasks: list[asyncio.Future[Any]] = []
    for work in works:
        tasks.append(asyncio.ensure_future(work))
        await until_waiting(roles, len(tasks))
    await holding.commit()
    return await asyncio.gather(*tasks, return_exceptions=True)


async def until_waiting(roles: Roles, count: int) -> None:
    """Until so many connections wait for a lock."""
    async with asyncio.timeout(30):
        waiting = "SELECT count(DISTINCT pid) FROM pg_locks WHERE NOT granted"
        while await roles.superuser.fetchval(waiting) < count:  # noqa: ASYNC110 - a lock's queue sends no notification
            await asyncio.sleep(0.005)


async def test_a_signal_that_is_edited_first_is_applied_as_edited(postgres_harness: Harness, roles: Roles) -> None:
    said = await say(postgres_harness)

    edited, applied = await run_in_order(roles, said, [said.edit(), said.apply()])

    assert (edited.text, await said.load_applied()) == (EDITED, [])
    assert isinstance(applied, InboxMoved)
    await said.apply(EDITED)
    signal = await said.load()
    assert (signal.state, signal.text, await said.load_applied()) == (SignalState.APPLIED, EDITED, [EDITED])


async def test_a_signal_that_is_applied_first_stays_as_it_was(postgres_harness: Harness, roles: Roles) -> None:
    said = await say(postgres_harness)

    _, edited, retracted = await run_in_order(roles, said, [said.apply(), said.edit(), said.retract()])

    assert isinstance(edited, Conflict) and isinstance(retracted, Conflict)
    signal = await said.load()
    assert (signal.state, signal.text, await said.load_applied()) == (SignalState.APPLIED, WAS, [WAS])


async def test_a_signal_that_is_taken_back_first_is_neither_applied_nor_edited(
    postgres_harness: Harness, roles: Roles
) -> None:
    said = await say(postgres_harness)

    retracted, applied, edited = await run_in_order(roles, said, [said.retract(), said.apply(), said.edit()])

    assert isinstance(applied, InboxMoved) and isinstance(edited, Conflict)
    signal = await said.load()
    assert (retracted.state, signal.state) == (SignalState.RETRACTED, SignalState.RETRACTED)
    assert (signal.text, await said.load_applied()) == (WAS, [])


@pytest.mark.parametrize("change", ["edit", "retract"])
async def test_a_signal_edited_before_the_end_is_promoted_with_the_edit(
    postgres_harness: Harness, roles: Roles, change: str
) -> None:
    said = await say(postgres_harness)
    work = said.edit() if change == "edit" else said.retract()

    changed, ended = await run_in_order(roles, said, [work, said.promote()])

    assert isinstance(ended, InboxMoved)
    assert await said.load() == changed


@pytest.mark.parametrize("change", ["edit", "retract"])
async def test_a_signal_that_became_the_next_turn_is_not_changed_any_more(
    postgres_harness: Harness, roles: Roles, change: str
) -> None:
    said = await say(postgres_harness)
    work = said.edit() if change == "edit" else said.retract()

    _, changed = await run_in_order(roles, said, [said.promote(), work])

    signal = await said.load()
    assert isinstance(changed, Conflict)
    assert (signal.state, signal.text) == (SignalState.PROMOTED, WAS)
    assert signal.promoted_to is not None
    turn = await postgres_harness.timelines.load_turn(ANN, signal.promoted_to)
    assert turn.request.text == WAS


async def test_concurrent_changes_of_a_signal_are_consistent(
    postgres_harness: Harness,
) -> None:
    for _ in range(ROUNDS):
        said = await say(postgres_harness)

        edited, retracted, applied = await asyncio.gather(
            said.edit(), said.retract(), said.apply(), return_exceptions=True
        )

        signal, texts = await said.load(), await said.load_applied()
        assert [type(each) for each in (edited, retracted) if not isinstance(each, Signal | Conflict)] == []
        if isinstance(applied, int):
            assert (texts, signal.state, signal.text) == ([WAS], SignalState.APPLIED, WAS)
            assert isinstance(edited, Conflict) and isinstance(retracted, Conflict)
        else:
            assert isinstance(applied, InboxMoved)
            assert (texts, signal.state) == ([], SignalState.RETRACTED)
            assert signal.text == (EDITED if isinstance(edited, Signal) else WAS)
