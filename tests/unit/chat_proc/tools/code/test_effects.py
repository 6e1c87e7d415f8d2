"""A call of a program happens once, whatever becomes of the worker."""

import pytest

from chat_proc.tools.code.program_calls import Answered, EffectGuard, encode_reply, try_decode_reply
from everturn.core.errors import Unavailable
from everturn.core.ids import CallId, TurnId
from everturn.core.lease_timing import LeaseTiming
from everturn.execution.messages import ToolReply
from everturn.turns.model import Effect, EffectState, Lease
from everturn.turns.ports import MAX_EFFECT_REPLY_CHARS, EffectKey, EffectRecord
from everturn_testing.in_memory_platform import ConversationRow, MemoryPlatform
from everturn_testing.turns.effects import MemoryEffects
from everturn_testing.turns.live_turn import RecordingTurn

KEY = EffectKey(TurnId("turn_1"), CallId("call_1"), "mail.send", "a" * 64, 1)
GOOD = ToolReply(7, True, {"sent": 1, "raw": b"\x00"})
BAD = ToolReply(7, False, None, "timeout", "mail.send did not finish within 5 s")


class Work:
    """Counts how often it was done."""

    def __init__(self, reply: ToolReply = GOOD, *, reported: bool = True) -> None:
        self.answered = Answered(reply, reported)
        self.done = 0

    async def __call__(self) -> Answered:
        self.done += 1
        return self.answered


@pytest.fixture
def live() -> RecordingTurn:
    return RecordingTurn()


@pytest.fixture
def ledger(live: RecordingTurn) -> MemoryEffects:
    platform = MemoryPlatform()
    platform.conversations[live.lease.conversation_id] = ConversationRow(
        live.lease.conversation_id, live.lease.principal, fence=1
    )
    return MemoryEffects(platform)


@pytest.fixture
def guard(ledger: MemoryEffects, live: RecordingTurn) -> EffectGuard:
    return EffectGuard(ledger, live)


def state_of(ledger: MemoryEffects) -> EffectState:
    (record,) = ledger.rows.values()
    return record.state


async def test_a_pure_call_needs_no_row(guard: EffectGuard, ledger: MemoryEffects, live: RecordingTurn) -> None:
    live.age_s = 1000.0

    assert await guard.run(KEY, Effect.PURE, 7, Work()) == GOOD
    assert ledger.rows == {}


@pytest.mark.parametrize("effect", [Effect.IDEMPOTENT, Effect.IRREVERSIBLE])
async def test_a_repeated_run_gets_what_the_first_one_got(
    guard: EffectGuard, ledger: MemoryEffects, effect: Effect
) -> None:
    first, again = Work(), Work()
    await guard.run(KEY, effect, 7, first)

    reply = await guard.run(KEY, effect, 2, again)

    assert (first.done, again.done) == (1, 0)
    assert reply == ToolReply(2, True, {"sent": 1, "raw": b"\x00"})
    assert state_of(ledger) is EffectState.COMMITTED


async def test_a_call_that_a_dead_worker_began_is_not_made_again(guard: EffectGuard, ledger: MemoryEffects) -> None:
    ledger.rows[(KEY.turn_id, KEY.row_id)] = EffectRecord(EffectState.INTENDED, "")
    work = Work()

    reply = await guard.run(KEY, Effect.IRREVERSIBLE, 7, work)

    assert work.done == 0
    assert reply.error_code == "ambiguous"
    assert "It is unknown whether the call took effect" in reply.error_message


async def test_an_idempotent_call_that_a_dead_worker_began_is_made_again(
    guard: EffectGuard, ledger: MemoryEffects
) -> None:
    ledger.rows[(KEY.turn_id, KEY.row_id)] = EffectRecord(EffectState.INTENDED, "")
    work = Work()

    assert (await guard.run(KEY, Effect.IDEMPOTENT, 7, work)).ok
    assert work.done == 1


async def test_a_call_whose_result_was_too_long_to_keep_is_not_made_again(
    guard: EffectGuard, ledger: MemoryEffects
) -> None:
    await guard.run(KEY, Effect.IRREVERSIBLE, 7, Work(ToolReply(7, True, "x" * MAX_EFFECT_REPLY_CHARS)))

    reply = await guard.run(KEY, Effect.IRREVERSIBLE, 7, again := Work())

    assert again.done == 0
    assert "too long to store" in reply.error_message
    assert state_of(ledger) is EffectState.COMMITTED


async def test_an_irreversible_call_without_outcome_is_ambiguous(guard: EffectGuard, ledger: MemoryEffects) -> None:
    reply = await guard.run(KEY, Effect.IRREVERSIBLE, 7, Work(BAD, reported=False))

    assert reply.error_code == "ambiguous"
    assert "did not finish within 5 s" in reply.error_message
    assert state_of(ledger) is EffectState.AMBIGUOUS


async def test_a_call_that_reports_its_failure_has_failed(guard: EffectGuard, ledger: MemoryEffects) -> None:
    assert await guard.run(KEY, Effect.IRREVERSIBLE, 7, Work(BAD)) == BAD
    assert state_of(ledger) is EffectState.FAILED


async def test_without_a_fresh_lease_nothing_is_begun(
    guard: EffectGuard, ledger: MemoryEffects, live: RecordingTurn
) -> None:
    live.age_s = LeaseTiming().sure_s
    work = Work()

    reply = await guard.run(KEY, Effect.IDEMPOTENT, 7, work)

    assert (work.done, reply.error_code, ledger.rows) == (0, "lease_unsure", {})


async def test_with_a_lost_lease_nothing_is_begun(ledger: MemoryEffects, live: RecordingTurn) -> None:
    stale = RecordingTurn(Lease(live.lease.conversation_id, live.lease.principal, "worker-0", 0))
    work = Work()

    reply = await EffectGuard(ledger, stale).run(KEY, Effect.IRREVERSIBLE, 7, work)

    assert (work.done, reply.error_code) == (0, "lease_unsure")


class Forgetful(MemoryEffects):
    """Takes beginnings and loses ends."""

    async def settle(self, lease: Lease, key: EffectKey, state: EffectState, reply: str) -> None:
        raise Unavailable("Postgres: gone")


async def test_a_call_with_an_unrecorded_outcome_is_never_repeated(live: RecordingTurn) -> None:
    platform = MemoryPlatform()
    platform.conversations[live.lease.conversation_id] = ConversationRow(
        live.lease.conversation_id, live.lease.principal, fence=1
    )
    guard = EffectGuard(Forgetful(platform), live)

    assert (await guard.run(KEY, Effect.IRREVERSIBLE, 7, Work())).ok
    assert (await guard.run(KEY, Effect.IRREVERSIBLE, 7, Work())).error_code == "ambiguous"


def test_a_kept_reply_is_ascii_and_reads_back_for_another_call() -> None:
    kept = encode_reply(ToolReply(7, True, {"text": "\0é\ud800", "raw": b"\xff"}))

    assert kept.isascii()
    assert "\0" not in kept
    assert try_decode_reply(kept, 9) == ToolReply(9, True, {"text": "\0é\ud800", "raw": b"\xff"})


@pytest.mark.parametrize("kept", ["", "{", "[]", '{"kind": "reply"}', '{"kind": "other"}'])
def test_an_invalid_stored_reply_is_none(kept: str) -> None:
    assert try_decode_reply(kept, 9) is None


@pytest.mark.parametrize("lease_s", [1.0, 5.0, 15.0, 60.0, 90.0, 120.0])
async def test_no_call_is_refused_while_renewals_come_on_time(
    lease_s: float, ledger: MemoryEffects, live: RecordingTurn
) -> None:
    timing = LeaseTiming(lease_s)
    guard = EffectGuard(ledger, live, lease=timing)

    # Just before a renewal, also before one that follows two that were lost.
    for occurrence, missed in enumerate([0, 1, 2]):
        live.age_s = (1 + missed) * timing.renew_every_s
        key = EffectKey(KEY.turn_id, KEY.run_call_id, KEY.tool_id, KEY.args_hash, occurrence)
        assert await guard.run(key, Effect.IRREVERSIBLE, 7, Work()) == GOOD

    live.age_s = timing.give_up_s
    refused = await guard.run(EffectKey(*(KEY.turn_id, KEY.run_call_id, "x", "h", 9)), Effect.IDEMPOTENT, 7, Work())
    assert refused.error_code == "lease_unsure"
