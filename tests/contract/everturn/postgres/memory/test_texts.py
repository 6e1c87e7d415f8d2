"""What was said in a turn, without what was done."""

from everturn.memory import postgres_search as texts
from everturn.timeline.blocks import BlockDraft, BlockType, chain_blocks
from everturn.timeline.bodies import CompletionBody, PromptBody, ThinkingBody
from everturn_testing.database_roles import Roles
from everturn_testing.memory.search_contract import MemoryDesk
from everturn_testing.turns.stage import TS, commit


async def test_texts_are_read_up_to_a_number_of_bytes(desk: MemoryDesk, roles: Roles) -> None:
    claim = await desk.stage.start_turn()
    turn = claim.turn_id
    assert turn is not None
    bodies = [PromptBody(text="why"), ThinkingBody(text="hm"), *[CompletionBody(text="x" * 600_000)] * 3]
    kinds = [BlockType.USER_PROMPT, BlockType.THINKING, *[BlockType.COMPLETION] * 3]
    drafts = [BlockDraft(turn, 1, kind, "ar:x", body, TS) for kind, body in zip(kinds, bodies, strict=True)]
    blocks = chain_blocks(drafts, next_seq=claim.next_seq, last_hash=claim.last_hash)
    await desk.stage.timelines.commit(claim.lease, commit(claim, blocks))

    async with roles.worker.transaction(desk.stage.principal) as transaction:
        found = await texts.load_text_blocks(transaction, claim.lease.conversation_id, turn)

    assert found == (blocks[0], blocks[2], blocks[3])
