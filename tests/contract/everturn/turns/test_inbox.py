"""The inbox in memory and in Postgres keep one contract; Postgres also under contention, with idempotency keys."""

import asyncio
from dataclasses import replace

import pytest
from helpers.databases import without_standby

from everturn.core.errors import Conflict
from everturn.core.identity import Lane, Principal, Role
from everturn.timeline.turns import SignalKind
from everturn.turns.inbox import IdempotencyKey, IncomingMessage, KeyBusy, KeyReused
from everturn.turns.ports import InboxMoved
from everturn.turns.postgres_inbox import PostgresInbox, claim_key, save_response
from everturn_local.servers.postgres import EmbeddedPostgres
from everturn_testing.database_roles import Roles
from everturn_testing.in_memory_platform import MemoryPlatform
from everturn_testing.turns.external_events_contract import ExternalEventsContract, TargetsContract
from everturn_testing.turns.harness import ANN, Harness, closing
from everturn_testing.turns.inbox import MemoryInbox
from everturn_testing.turns.inbox_contract import InboxContract, UploadsContract
from everturn_testing.turns.queue_caps_contract import CAPS, QueueCapsContract
from everturn_testing.turns.receipts_contract import ReceiptsContract

CONFIRMED_S = 0.5
"""How long a commit waits for the standby in a test."""
TRIES = 500


class TestPostgresInbox(InboxContract, UploadsContract, ExternalEventsContract, TargetsContract, ReceiptsContract):
    @pytest.fixture
    def harness(self, postgres_harness: Harness) -> Harness:
        return postgres_harness


async def test_a_turn_with_messages_beyond_the_limit_can_be_cancelled(
    postgres_harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The ingress of the version before accepts more messages during an upgrade.
    claim = await postgres_harness.start_turn()
    conversation_id = claim.lease.conversation_id
    for _ in range(2):
        await postgres_harness.say("More.", conversation_id)
    monkeypatch.setattr("everturn.turns.postgres_inbox.MAX_TURN_SIGNAL_BYTES", 1)

    cancel = await postgres_harness.signal(conversation_id, SignalKind.CANCEL)

    assert cancel.signal_id is not None
    edited = await postgres_harness.inbox.save_signal_text(
        postgres_harness.principal, conversation_id, cancel.signal_id, "Stop."
    )
    assert edited.text == "Stop."
    with pytest.raises(Conflict):
        await postgres_harness.say("One too many.", conversation_id)


async def test_a_receipt_is_not_shown_before_the_standby_has_it(
    postgres_harness: Harness, postgres_server: EmbeddedPostgres
) -> None:
    harness = postgres_harness
    with without_standby(postgres_server):
        key = await _say_unconfirmed(harness)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(CONFIRMED_S):
                await harness.inbox.try_load_receipt(harness.principal, key)

    kept = await harness.inbox.try_load_receipt(harness.principal, key)
    assert kept is not None and kept.replayed


async def _say_unconfirmed(harness: Harness) -> IdempotencyKey:
    for _ in range(TRIES):
        key = IdempotencyKey("messages", harness.ids.call(), "hash")
        try:
            async with asyncio.timeout(CONFIRMED_S):
                await harness.say(key=key)
        except TimeoutError:
            return key
    raise AssertionError("the server does not wait for the standby")


async def test_twenty_duplicates_open_one_turn(postgres_harness: Harness) -> None:
    key = IdempotencyKey("messages", postgres_harness.ids.call(), "hash")

    async with asyncio.TaskGroup() as tasks:
        requests = [tasks.create_task(postgres_harness.say(key=key)) for _ in range(20)]

    receipts = [request.result() for request in requests]
    assert len({receipt.turn_id for receipt in receipts}) == 1
    assert [receipt.replayed for receipt in receipts].count(False) == 1
    assert [receipt.ring for receipt in receipts].count(True) == 1


async def test_a_duplicate_of_a_hanging_request_gets_key_busy(postgres_harness: Harness, roles: Roles) -> None:
    key = IdempotencyKey("messages", postgres_harness.ids.call(), "hash")
    owner = (ANN.tenant, ANN.project, ANN.user_id)
    transaction = roles.superuser.transaction()
    await transaction.start()
    await roles.superuser.execute(
        "INSERT INTO idempotency VALUES ($1, $2, $3, $4, $5, 'hash', 'x', '', now() + interval '1 h')",
        *owner,
        key.route,
        key.key,
    )

    with pytest.raises(KeyBusy):
        await postgres_harness.say(key=key)

    await transaction.rollback()
    assert not (await postgres_harness.say(key=key)).replayed


async def test_a_key_is_free_again_after_a_day(postgres_harness: Harness, roles: Roles) -> None:
    key = IdempotencyKey("messages", postgres_harness.ids.call(), "hash")
    first = await postgres_harness.say(key=key)
    await roles.superuser.execute("UPDATE idempotency SET expires_at = now() - interval '1 s' WHERE key = $1", key.key)

    second = await postgres_harness.say(key=IdempotencyKey("messages", key.key, "other"))

    assert second.conversation_id != first.conversation_id


async def test_messages_at_once_make_one_turn_and_signals(postgres_harness: Harness) -> None:
    harness, conversation_id = postgres_harness, postgres_harness.ids.conversation()
    first = IncomingMessage(conversation_id, True, "0", (), harness.ids.turn(), harness.ids.signal())
    await harness.inbox.accept_message(ANN, first, None)

    async with asyncio.TaskGroup() as tasks:
        said = [tasks.create_task(harness.say(str(n), conversation_id)) for n in range(10)]

    receipts = [task.result() for task in said]
    assert {receipt.turn_id for receipt in receipts} == {first.turn_id}
    assert len(await harness.timelines.load_signals(ANN, first.turn_id)) == 10


async def test_a_message_and_the_end_of_the_turn_never_miss_each_other(postgres_harness: Harness) -> None:
    harness = postgres_harness
    for _ in range(30):
        claim = await harness.start_turn()
        assert claim.turn_id is not None

        ended, said = await asyncio.gather(
            harness.timelines.commit(claim.lease, closing(claim, seen_inbox=claim.inbox_seq)),
            harness.say("Wait!", claim.lease.conversation_id),
            return_exceptions=True,
        )

        assert not isinstance(said, BaseException)
        if isinstance(ended, InboxMoved):
            assert said.signal_id is not None
        else:
            assert said.signal_id is None and said.turn_id != claim.turn_id


_HOLD_QUEUE = "SELECT pg_advisory_xact_lock(hashtextextended('queue:registered:' || $1, 0))"
_WAITS_AFTER_WRITING = """
SELECT EXISTS (
    SELECT FROM pg_locks waiting JOIN pg_locks held USING (pid)
     WHERE waiting.locktype = 'advisory' AND NOT waiting.granted
       AND held.relation = 'turn'::regclass AND held.mode = 'RowExclusiveLock')
"""


async def test_a_large_message_is_written_before_the_queue_is_locked(postgres_harness: Harness, roles: Roles) -> None:
    tenant = Principal("large", "p", "u", frozenset({Role.REGISTERED}))
    harness = replace(postgres_harness, principal=tenant)
    held = roles.superuser.transaction()
    await held.start()
    await roles.superuser.execute(_HOLD_QUEUE, tenant.tenant)

    accepting = asyncio.create_task(harness.say())
    try:
        async with asyncio.timeout(60):
            while not (written := await roles.superuser.fetchval(_WAITS_AFTER_WRITING)) and not accepting.done():
                pass
    finally:
        await held.rollback()
    receipt = await accepting

    assert written
    assert receipt.lane is Lane.REGISTERED


async def test_a_tenant_beyond_its_share_waits_without_a_doorbell(postgres_harness: Harness, roles: Roles) -> None:
    tenant = Principal("crowded", "p", "u")
    harness = replace(postgres_harness, inbox=PostgresInbox(roles.ingress, share=2), principal=tenant)

    rings = [(await harness.say()).ring for _ in range(3)]
    elsewhere = (await replace(harness, principal=Principal("calm", "p", "u")).say()).ring

    assert (rings, elsewhere) == ([True, True, False], True)


KEY = IdempotencyKey("fork", "key-1", "hash")


async def test_the_first_answer_is_given_again_and_another_body_is_refused(
    roles: Roles, postgres_harness: Harness
) -> None:
    conversation = postgres_harness.ids.conversation()
    async with roles.ingress.transaction(ANN) as transaction:
        assert await claim_key(transaction, ANN, conversation, KEY) is None
        await save_response(transaction, KEY, "the answer", conversation)

    async with roles.ingress.transaction(ANN) as transaction:
        assert await claim_key(transaction, ANN, conversation, KEY) == "the answer"
        with pytest.raises(KeyReused):
            await claim_key(transaction, ANN, conversation, IdempotencyKey("fork", "key-1", "other"))


async def test_without_a_key_nothing_is_kept(roles: Roles, postgres_harness: Harness) -> None:
    conversation = postgres_harness.ids.conversation()

    async with roles.ingress.transaction(ANN) as transaction:
        assert await claim_key(transaction, ANN, conversation, None) is None
        await save_response(transaction, None, "the answer", conversation)
        assert not await transaction.fetchval(
            "SELECT count(*) FROM idempotency WHERE conversation_id = $1", conversation
        )


class TestMemoryInbox(InboxContract, UploadsContract, ExternalEventsContract, TargetsContract, ReceiptsContract):
    @pytest.fixture
    def harness(self, memory_harness: Harness) -> Harness:
        return memory_harness


class TestMemoryCaps(QueueCapsContract):
    @pytest.fixture
    def capped(self, memory_harness: Harness, memory_platform: MemoryPlatform) -> Harness:
        return replace(memory_harness, inbox=MemoryInbox(memory_platform, caps=CAPS))


async def test_an_ingress_of_the_version_before_can_accept_turns(roles: Roles) -> None:
    """It passes no bundles."""
    found = "SELECT pronargs, pronargdefaults FROM pg_proc WHERE proname = 'accept_turn'"

    assert [(row["pronargs"], row["pronargdefaults"]) for row in await roles.superuser.fetch(found)] == [(26, 1)]
