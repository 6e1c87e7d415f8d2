"""Which keys no row of any tenant names."""

import pytest

from everturn.core.errors import Invalid
from everturn.files.model import manifest_key
from everturn.lifecycle.orphans import MAX_KEYS
from everturn.lifecycle.postgres_erasure import PostgresObjectRows
from everturn_testing.database_roles import Roles
from everturn_testing.turns.stage import ANN, Stage, turn_of


@pytest.fixture(params=["ingress", "worker"])
def rows(request: pytest.FixtureRequest, roles: Roles) -> PostgresObjectRows:
    """As each role that may ask."""
    return PostgresObjectRows(roles.ingress if request.param == "ingress" else roles.worker)


async def test_what_a_row_of_anybody_names_is_no_orphan(postgres_stage: Stage, rows: PostgresObjectRows) -> None:
    receipt = await postgres_stage.say(uploads=(postgres_stage.upload(),))
    (attachment,) = (await postgres_stage.timelines.load_turn(ANN, turn_of(receipt))).request.attachments
    kept = manifest_key(receipt.conversation_id, turn_of(receipt), 1)
    lost = [
        f"{receipt.conversation_id}/{'0' * 64}",
        manifest_key(receipt.conversation_id, postgres_stage.ids.turn(), 1),
        manifest_key(postgres_stage.ids.conversation(), turn_of(receipt), 1),
    ]

    found = await rows.load_orphans([attachment.object_key, kept, *lost])

    assert sorted(found) == sorted(lost)


async def test_what_a_worker_may_still_commit_is_no_orphan(postgres_stage: Stage, rows: PostgresObjectRows) -> None:
    claim = await postgres_stage.start_turn()
    conversation_id = claim.lease.conversation_id
    saved = f"{conversation_id}/{'0' * 64}"

    held = await rows.load_orphans([saved])
    await postgres_stage.expire_lease(conversation_id)
    run_out = await rows.load_orphans([saved])
    await postgres_stage.leases.release(claim.lease, requeue=True)

    assert (held, run_out) == ((), ())
    assert await rows.load_orphans([saved]) == (saved,)


async def test_a_question_has_a_bound(rows: PostgresObjectRows) -> None:
    assert await rows.load_orphans([]) == ()
    with pytest.raises(Invalid):
        await rows.load_orphans(["x"] * (MAX_KEYS + 1))
