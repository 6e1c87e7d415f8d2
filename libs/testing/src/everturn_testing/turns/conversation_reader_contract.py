"""The contract of ConversationReader as tests; a subclass or its module defines the fixtures `harness` and `reader`."""

from everturn.core.ids import PlanId, TurnId
from everturn.core.refs import round_ref
from everturn.timeline.blocks import Block, BlockDraft, BlockType, Body, PlanBody, ThinkingBody, chain_blocks
from everturn.timeline.plans import PlanMoment, mark_steps, new_plan
from everturn.turns.model import Claim
from everturn.turns.ports import BlockPage, ConversationReader
from everturn_testing.turns.harness import STRANGERS, TS, Harness, closing, commit

Draft = tuple[BlockType, str, Body]


class ConversationReaderContract:
    """Required of every ConversationReader."""

    async def test_a_turn_comes_in_pages_of_bytes(self, harness: Harness, reader: ConversationReader) -> None:
        claim = await harness.start_turn()
        blocks = await _write(harness, claim, *(_thought(claim, str(n), "x" * 1000) for n in range(5)))
        where = (harness.principal, claim.lease.conversation_id, _turn(claim))

        first = await reader.load_turn_blocks(*where, max_bytes=1500)
        rest = await reader.load_turn_blocks(*where, after_seq=first.blocks[-1].seq)

        assert first == BlockPage(blocks[:2], more=True)
        assert rest == BlockPage(blocks[2:], more=False)

    async def test_a_page_has_at_least_one_block(self, harness: Harness, reader: ConversationReader) -> None:
        claim = await harness.start_turn()
        blocks = await _write(harness, claim, _thought(claim, "a", "x" * 1000), _thought(claim, "b", "y"))

        page = await reader.load_turn_blocks(harness.principal, claim.lease.conversation_id, _turn(claim), max_bytes=1)

        assert page == BlockPage(blocks[:1], more=True)

    async def test_only_the_blocks_of_the_turn_are_read(self, harness: Harness, reader: ConversationReader) -> None:
        claim = await harness.start_turn()
        old = await _write(harness, claim, _thought(claim, "a", "old"))
        ended = closing(claim, seen_inbox=claim.inbox_seq, after=old)
        await harness.timelines.commit(claim.lease, ended)
        await harness.leases.release(claim.lease, requeue=False)
        await harness.say("More.", claim.lease.conversation_id)
        next_claim = await harness.claim(claim.lease.conversation_id)
        new = await _write(harness, next_claim, _thought(next_claim, "a", "new"))
        where = (harness.principal, claim.lease.conversation_id)

        pages = [await reader.load_turn_blocks(*where, _turn(each)) for each in (claim, next_claim)]

        assert [page.blocks for page in pages] == [(*old, *ended.blocks), new]

    async def test_the_newest_earlier_blocks_of_some_types_are_loaded(
        self, harness: Harness, reader: ConversationReader
    ) -> None:
        claim = await harness.start_turn()
        blocks = await _write(harness, claim, *(_thought(claim, str(n), "x" * 1000) for n in range(4)))
        where = (harness.principal, claim.lease.conversation_id)
        kinds = [BlockType.THINKING]

        every = await reader.load_blocks_before(*where, blocks[3].seq, kinds)
        newest = await reader.load_blocks_before(*where, blocks[3].seq, kinds, max_bytes=1500)
        others = await reader.load_blocks_before(*where, blocks[3].seq, [BlockType.EXIT])
        (stranger, *_) = [await reader.load_blocks_before(each, where[1], 100, kinds) for each in STRANGERS]

        assert every == BlockPage(blocks[:3], more=False)
        assert newest == BlockPage(blocks[1:3], more=True)
        assert others == stranger == BlockPage((), more=False)

    async def test_the_last_block_of_a_ref_or_type_is_found(self, harness: Harness, reader: ConversationReader) -> None:
        claim = await harness.start_turn()
        first, second, third = await _write(
            harness, claim, _thought(claim, "a", "1"), _thought(claim, "a", "2"), _thought(claim, "b", "3")
        )
        where = (harness.principal, claim.lease.conversation_id, _turn(claim))

        assert await reader.try_load_last_block(*where, ref=first.ref) == second
        assert await reader.try_load_last_block(*where, kind=BlockType.THINKING) == third
        assert await reader.try_load_last_block(*where, ref=first.ref, kind=BlockType.NOTES) is None
        assert await reader.try_load_last_block(*where, ref="ar:nothing") is None

    async def test_the_newest_snapshot_of_a_plan_is_found(self, harness: Harness, reader: ConversationReader) -> None:
        claim = await harness.start_turn()
        moment = PlanMoment(_turn(claim), TS)
        (plan,) = new_plan([], plan_id=PlanId("plan_a"), labels=["a", "b"], moment=moment)
        (other,) = new_plan([], plan_id=PlanId("other_plan_a"), labels=["a", "b"], moment=moment)
        marked = mark_steps(plan, "✓ [1]", moment=moment)
        assert marked is not None
        written = await _write(
            harness, claim, *((BlockType.PLAN, one.snapshot_ref, PlanBody(plan=one)) for one in (plan, marked, other))
        )
        where = (harness.principal, claim.lease.conversation_id)

        assert await reader.try_load_plan(*where, "plan_a") == written[1]
        assert await reader.try_load_plan(*where, "plan_x") is None

    async def test_blocks_of_other_owners_are_not_visible(self, harness: Harness, reader: ConversationReader) -> None:
        claim = await harness.start_turn()
        (block,) = await _write(harness, claim, _thought(claim, "a", "secret"))
        where = (claim.lease.conversation_id, _turn(claim))

        for stranger in STRANGERS:
            assert await reader.load_turn_blocks(stranger, *where) == BlockPage((), more=False)
            assert await reader.try_load_last_block(stranger, *where, ref=block.ref) is None
            assert await reader.try_load_plan(stranger, claim.lease.conversation_id, "plan_a") is None

    async def test_a_turn_is_read_in_its_own_conversation_only(
        self, harness: Harness, reader: ConversationReader
    ) -> None:
        claim, other = await harness.start_turn(), await harness.start_turn()
        await _write(harness, claim, _thought(claim, "a", "here"))

        page = await reader.load_turn_blocks(harness.principal, other.lease.conversation_id, _turn(claim))

        assert page == BlockPage((), more=False)


def _turn(claim: Claim) -> TurnId:
    assert claim.turn_id is not None
    return claim.turn_id


def _thought(claim: Claim, what: str, text: str) -> Draft:
    return (BlockType.THINKING, round_ref(_turn(claim), 1, what), ThinkingBody(text=text))


async def _write(harness: Harness, claim: Claim, *drafts: Draft) -> tuple[Block, ...]:
    blocks = chain_blocks(
        [BlockDraft(_turn(claim), 1, kind, ref, body, TS) for kind, ref, body in drafts],
        next_seq=claim.next_seq,
        last_hash=claim.last_hash,
    )
    await harness.timelines.commit(claim.lease, commit(claim, blocks))
    return blocks
