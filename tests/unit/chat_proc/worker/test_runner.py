import asyncio
from dataclasses import replace
from typing import Any, cast

import pytest
from prometheus_client import REGISTRY, Counter
from structlog.testing import capture_logs
from turn_harness.checks import check_conversation
from turn_harness.harness import ANN, Bench, BenchWorker, until
from turn_harness.replies import answer, cut_answer

from chat_proc.attachments.fitting import PictureFitter
from chat_proc.attachments.policy import FILE_TIMEOUT_S
from chat_proc.attachments.reader import AttachmentReader
from chat_proc.worker.heartbeat import STALL_S
from chat_proc.worker.runner import MAX_ATTEMPTS, MAX_CLOSINGS
from everturn.core.errors import DatabaseFault, StaleFence, Unavailable
from everturn.core.identity import Lane
from everturn.core.ids import ConversationId
from everturn.core.metrics import ANNOUNCEMENTS_FAILED, LEASES_ERASED
from everturn.core.retry import RetryPolicy
from everturn.events.cursor import ORIGIN
from everturn.events.model import TERMINAL_TYPES, ChatStart, ConvStatus
from everturn.events.stream import Entry
from everturn.files.model import Upload
from everturn.timeline.blocks import Block, ExitBody, NoticeBody, PromptBody
from everturn.timeline.forms import UNSEEN
from everturn.timeline.turns import Outcome, SignalKind, TurnStatus
from everturn.turns.inbox import IncomingMessage
from everturn.turns.model import Commit, Lease
from everturn.turns.ports import Timelines
from everturn_testing.models.scripted_model import Fail, Pause, Say


async def say_with_file(bench: Bench, key: str) -> None:
    begun_at = bench.clock.now()
    upload = Upload(bench.ids.artifact(), "a.txt", "text/plain", 4, "0" * 64, key, "not scanned", begun_at)
    message = IncomingMessage(
        conversation_id=bench.conversation_id,
        create=True,
        text="Read it.",
        uploads=(upload,),
        turn_id=bench.ids.turn(),
        signal_id=bench.ids.signal(),
    )
    await bench.inbox.accept_message(ANN, message, None)
    bench.keep_snapshot()


async def test_a_turn_begins_with_its_start_and_the_state_of_the_conversation() -> None:
    bench = Bench(answer("Done."))
    await bench.say("Hello.")

    await bench.work()

    published = await bench.published()
    assert isinstance(published[0].data, ChatStart)
    assert published[1].data == ConvStatus(state="running", turn_id=bench.turn_rows[0].id)


async def test_the_preview_of_an_attachment_reaches_the_model() -> None:
    bench = Bench(answer("Done."))
    bench.objects.stored["conv/a"] = b"note"
    await say_with_file(bench, "conv/a")

    await bench.work()

    assert "note" in str(bench.model.requests[0])
    await check_conversation(bench)


async def test_a_turn_goes_on_without_the_preview_of_an_unreadable_file() -> None:
    bench = Bench(answer("Done."))
    await say_with_file(bench, "conv/gone")

    await bench.work()

    assert bench.texts(PromptBody) == ["Read it."]
    assert "a.txt" in str(bench.model.requests[0])
    assert bench.turn_rows[0].status is TurnStatus.COMPLETED
    await check_conversation(bench)


async def test_a_turn_without_progress_is_given_up_after_three_takeovers() -> None:
    bench = Bench()
    await bench.say("Hello.")
    for _ in range(MAX_ATTEMPTS):
        await bench.hire(dies_at=3).work()
        bench.expire_lease()

    await bench.work()

    error = bench.exits[0].error
    assert error is not None
    assert error.type.endswith("turn-given-up")
    await check_conversation(bench)


def read_crashes() -> float:
    return REGISTRY.get_sample_value("everturn_turn_crashes_total") or 0.0


@pytest.mark.parametrize("shown", [False, True])
async def test_a_fault_of_our_own_code_is_named_and_what_was_shown_is_kept(shown: bool) -> None:
    begun = [Say(cut_answer("Half of it"))] if shown else []
    crashes = read_crashes()
    bench = Bench(*[[*begun, Fail(ZeroDivisionError("our fault"))]] * MAX_ATTEMPTS)
    await bench.say("Hello.")
    for _ in range(MAX_ATTEMPTS):
        worker = bench.hire()
        worker.may_crash = True
        await worker.run_one()
        bench.expire_lease()

    (end,) = bench.exits
    assert read_crashes() - crashes == MAX_ATTEMPTS
    if shown:
        assert (end.outcome, end.cut_reason) == (Outcome.CUT, "server_error")
        assert bench.state().turns[0].answer == "Half of it"
        assert end.rounds == 1
        assert "the server failed" in bench.texts(NoticeBody)[-1]
        await check_conversation(bench, ends_may_repeat=True)
    else:
        assert end.error is not None
        assert end.error.type.endswith("internal-error")


async def test_a_rejected_statement_ends_the_turn_as_a_fault_of_the_server() -> None:
    async def reject(commit: Commit) -> None:
        if any(
            isinstance(body := block.body, ExitBody) and body.outcome is Outcome.COMPLETED for block in commit.blocks
        ):
            raise DatabaseFault("23505: duplicate key value")

    bench = Bench(*[answer("Done.")] * MAX_ATTEMPTS)
    await bench.say("Hello.")
    for _ in range(MAX_ATTEMPTS):
        worker = bench.hire()
        worker.may_crash = True
        worker.timelines.before_commit = reject
        await worker.run_one()
        bench.expire_lease()

    (end,) = bench.exits
    assert (end.outcome, end.cut_reason) == (Outcome.CUT, "server_error")


async def test_a_turn_whose_blocks_can_not_be_read_ends_all_the_same() -> None:
    bench = Bench(answer("Done."))
    await bench.say("Hello.")
    await bench.hire(failpoint="turn.opened:1:raise").work()
    unreadable = cast(Block, object())
    bench.blocks[0] = unreadable
    worker = bench.hire()
    worker.may_crash = True

    for _ in range(MAX_ATTEMPTS + MAX_CLOSINGS):
        bench.expire_lease()
        await worker.run_one()

    (row,) = bench.turn_rows
    assert row.status is TurnStatus.FAILED
    assert row.error is not None
    assert row.error.type.endswith("turn-given-up")


async def test_a_lost_lease_raises_stale_fence() -> None:
    bench = Bench()
    await bench.say("Hello.")
    worker = bench.hire()
    claim = await worker.leases.try_claim(bench.conversation_id)
    assert claim is not None
    runner = worker.build_runner(claim, bench.clock.monotonic())

    runner.lose_lease()

    with pytest.raises(StaleFence):
        await runner.run()
    assert bench.blocks == []


async def test_what_a_turn_saved_after_its_conversation_was_erased_is_removed() -> None:
    go_on = asyncio.Event()
    bench = Bench([Pause(go_on), Say(answer("Done."))])
    await bench.say("Hello.")
    worker = bench.hire()
    claim = await worker.leases.try_claim(bench.conversation_id)
    assert claim is not None
    running = asyncio.create_task(worker.build_runner(claim, bench.clock.monotonic()).run())
    await until(lambda: bench.model.unfinished == 1)
    bench.objects.stored |= {f"{bench.conversation_id}/late": b"late", "conv_other/kept": b"kept"}

    del bench.platform.conversations[bench.conversation_id]
    go_on.set()

    with capture_logs() as logs:
        assert not await running
    assert list(bench.objects.stored) == ["conv_other/kept"]
    assert [(line["event"], line["log_level"]) for line in logs] == [
        ("Conversation was erased while its turn ran", "info")
    ]


async def test_an_erasure_between_claim_and_load_is_a_normal_end() -> None:
    bench = Bench()
    await bench.say("Hello.")
    worker = bench.hire()
    claim = await worker.leases.try_claim(bench.conversation_id)
    assert claim is not None
    bench.objects.stored |= {f"{bench.conversation_id}/late": b"late", "conv_other/kept": b"kept"}

    del bench.platform.conversations[bench.conversation_id]
    with capture_logs() as logs:
        ended = await worker.build_runner(claim, bench.clock.monotonic()).run()

    assert not ended
    assert list(bench.objects.stored) == ["conv_other/kept"]
    assert [(line["event"], line["log_level"]) for line in logs] == [
        ("Conversation was erased while its turn ran", "info")
    ]


class AwayTimelines:
    """Timelines that can't load the start of a turn."""

    def __init__(self, inner: Timelines) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def load_start(self, *_: object, **__: object) -> object:
        raise Unavailable("Postgres")


async def test_a_turn_whose_database_is_away_is_cut_off_and_writes_nothing() -> None:
    bench = Bench()
    await bench.say("Hello.")
    worker = bench.hire()
    worker.change(timelines=AwayTimelines(worker.timelines), retries=RetryPolicy(()))
    claim = await worker.leases.try_claim(bench.conversation_id)
    assert claim is not None
    runner = worker.build_runner(claim, bench.clock.monotonic())

    with pytest.raises(Unavailable):
        await runner.run()

    assert not runner.left_behind
    assert not runner.is_releasing
    assert bench.blocks == []


async def test_work_that_fails_as_an_erasure_takes_its_lease_leaves_no_objects() -> None:
    bench = Bench()
    await bench.say("Hello.")
    worker = bench.hire()
    worker.change(timelines=AwayTimelines(worker.timelines), retries=RetryPolicy(()))
    claim = await worker.leases.try_claim(bench.conversation_id)
    assert claim is not None
    bench.objects.stored |= {f"{bench.conversation_id}/late": b"late", "conv_other/kept": b"kept"}
    del bench.platform.conversations[bench.conversation_id]
    runner = worker.build_runner(claim, bench.clock.monotonic())

    runner.lose_lease()

    assert not await runner.run()
    assert list(bench.objects.stored) == ["conv_other/kept"]


async def test_a_drain_after_the_loss_of_the_lease_writes_nothing_either() -> None:
    bench = Bench()
    await bench.say("Hello.")
    worker = bench.hire()
    claim = await worker.leases.try_claim(bench.conversation_id)
    assert claim is not None
    runner = worker.build_runner(claim, bench.clock.monotonic())

    runner.lose_lease()
    runner.interrupt()

    with pytest.raises(StaleFence):
        await runner.run()
    assert bench.turn_rows[0].status is TurnStatus.RUNNING


async def test_a_handover_asked_for_before_the_turn_is_loaded_is_kept_in_mind() -> None:
    bench = Bench(answer("Done."))
    await bench.say("Hello.")
    worker = bench.hire()
    claim = await worker.leases.try_claim(bench.conversation_id)
    assert claim is not None
    runner = worker.build_runner(claim, bench.clock.monotonic())
    runner.ring_inbox()
    runner.notice_inbox(9)

    runner.request_handover()
    await runner.run()

    assert bench.turn_rows[0].status is TurnStatus.QUEUED
    await bench.work()
    await check_conversation(bench)


async def test_an_unannounced_end_does_not_block_the_next_turn() -> None:
    bench = Bench(answer("One."), answer("Two."))
    await bench.say("First.")
    # The first turn ends, and its worker dies before it announces the end.
    await bench.hire(failpoint="turn.after_c3:1:raise").run_one()
    bench.expire_lease()
    first = bench.turn_rows[0].id
    bench.turns.poisoned.add(first)
    failed_before = value_of(ANNOUNCEMENTS_FAILED)
    await bench.say("Second.")

    worker = bench.hire()
    await worker.run_one()

    assert [turn.status for turn in bench.turn_rows] == [TurnStatus.COMPLETED] * 2
    assert not bench.platform.turns[first].announced
    assert value_of(ANNOUNCEMENTS_FAILED) == failed_before + 1
    bench.turns.poisoned.clear()
    await worker.run_one()
    assert bench.platform.turns[first].announced


async def test_an_erasure_while_an_end_is_published_is_a_normal_end() -> None:
    bench = Bench(answer("One."))
    await bench.say("First.")
    await bench.hire(failpoint="turn.after_c3:1:raise").run_one()
    bench.expire_lease()
    worker = bench.hire()
    claim = await worker.leases.try_claim(bench.conversation_id)
    assert claim is not None
    assert (claim.turn_id, claim.unannounced) == (None, (bench.turn_rows[0].id,))
    bench.objects.stored |= {f"{bench.conversation_id}/late": b"late", "conv_other/kept": b"kept"}
    failed_before, erased_before = value_of(ANNOUNCEMENTS_FAILED), value_of(LEASES_ERASED)

    del bench.platform.conversations[bench.conversation_id], bench.platform.turns[bench.turn_rows[0].id]
    with capture_logs() as logs:
        ended = await worker.build_runner(claim, bench.clock.monotonic()).run()

    assert not ended
    assert list(bench.objects.stored) == ["conv_other/kept"]
    assert [(line["event"], line["log_level"]) for line in logs] == [
        ("Conversation was erased while its turn ran", "info")
    ]
    assert (value_of(ANNOUNCEMENTS_FAILED), value_of(LEASES_ERASED)) == (failed_before, erased_before + 1)


async def test_after_a_crash_the_open_turn_runs_before_old_ends() -> None:
    bench = Bench(answer("One."), answer("Two."))
    await bench.say("First.")
    await bench.hire(failpoint="turn.after_c3:1:raise").run_one()
    bench.expire_lease()
    first = bench.turn_rows[0].id
    await bench.say("Second.")
    await bench.hire(failpoint="turn.opened:1:raise").run_one()
    bench.expire_lease()
    bench.platform.turns[first].announced = False
    bench.turns.poisoned.add(first)
    failed_before = value_of(ANNOUNCEMENTS_FAILED)

    await bench.hire().run_one()

    assert [turn.status for turn in bench.turn_rows] == [TurnStatus.COMPLETED] * 2
    assert value_of(ANNOUNCEMENTS_FAILED) == failed_before


async def test_an_unannounced_end_does_not_ring_its_own_doorbell() -> None:
    bench = Bench(answer("One."))
    await bench.say("First.")
    await bench.hire(failpoint="turn.after_c3:1:raise").run_one()
    bench.expire_lease()
    bench.turns.poisoned.add(bench.turn_rows[0].id)

    await bench.hire().run_one()

    assert await bench.doorbells.next_ring([Lane.REGISTERED], timeout_s=0.01) is None
    assert bench.platform.conversations[bench.conversation_id].lease_owner is None


class StuckTimelines:
    """Timelines whose first commit never returns and ignores its first cancellation, as a lost one would."""

    def __init__(self, inner: Timelines) -> None:
        self._inner = inner
        self.entered = asyncio.Event()
        self.is_stuck = True

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def commit(self, lease: Lease, commit: Commit) -> int:
        if not self.is_stuck:
            return await self._inner.commit(lease, commit)
        self.is_stuck = False
        self.entered.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await asyncio.Event().wait()
        raise AssertionError("never reached")


class SlowPictures(PictureFitter):
    """Each picture waits as long as it may."""

    def __init__(self, bench: Bench, worker: BenchWorker) -> None:
        super().__init__()
        self._bench = bench
        self._worker = worker
        self.stalled_for_s: list[float] = []

    async def fit(self, data: bytes, tenant: str) -> bytes:
        assert tenant == ANN.tenant
        assert self._worker.current is not None
        self._bench.clock.advance(FILE_TIMEOUT_S)
        self.stalled_for_s.append(self._worker.current.stalled_for_s())
        raise Unavailable("Too many pictures are being shrunk.")


async def test_a_slow_queue_of_pictures_does_not_stall_the_lease() -> None:
    bench = Bench(answer("Done."))
    await bench.say("Look.")
    files = [bench.upload(f"{n}.png", bytes([n])) for n in range(5)]
    await bench.signal(SignalKind.FOLLOWUP, "See.", uploads=tuple(replace(file, mime="image/png") for file in files))
    worker = bench.hire()
    pictures = SlowPictures(bench, worker)
    worker.change(loop=replace(worker.parts.loop, attachments=AttachmentReader(bench.objects, pictures)))

    await worker.work()

    assert len(pictures.stalled_for_s) == 5
    assert max(pictures.stalled_for_s) < STALL_S
    assert str(bench.model.requests[0]).count(UNSEEN.strip()) == 1
    assert bench.turn_rows[0].status is TurnStatus.COMPLETED


async def test_a_stuck_turn_stalls_and_another_worker_ends_it_once() -> None:
    bench = Bench(answer("Done."))
    await bench.say("Hello.")
    worker = bench.hire()
    stuck = StuckTimelines(worker.timelines)
    worker.change(timelines=stuck)
    claim = await worker.leases.try_claim(bench.conversation_id)
    assert claim is not None
    runner = worker.build_runner(claim, bench.clock.monotonic())
    running = asyncio.create_task(runner.run())
    await stuck.entered.wait()

    bench.clock.advance(STALL_S + 1)
    assert runner.stalled_for_s() > STALL_S
    runner.lose_lease()
    with pytest.raises(StaleFence):
        await running

    await bench.work()
    assert [exit.error for exit in bench.exits] == [None]
    await check_conversation(bench)


async def test_a_turn_that_waits_for_its_model_is_not_stalled() -> None:
    go_on = asyncio.Event()
    bench = Bench([Pause(go_on), Say(answer("Done."))])
    await bench.say("Hello.")
    worker = bench.hire()
    claim = await worker.leases.try_claim(bench.conversation_id)
    assert claim is not None
    runner = worker.build_runner(claim, bench.clock.monotonic())
    running = asyncio.create_task(runner.run())
    await until(lambda: bench.model.unfinished == 1)

    bench.clock.advance(10 * STALL_S)

    assert runner.stalled_for_s() == 0
    assert runner.describe() == f"{claim.turn_id}: model call for 1200 s; last progress 1200 s ago"
    go_on.set()
    assert await running


def value_of(counter: Counter) -> float:
    return next(sample.value for sample in next(iter(counter.collect())).samples if sample.name.endswith("_total"))


async def test_after_the_stream_was_emptied_everybody_finds_a_gap() -> None:
    bench = Bench(answer("One."), answer("Two."))
    await bench.say("First.")
    await bench.work()
    cursor = bench.platform.conversations[bench.conversation_id].cursor
    bench.events.lose_all()
    await bench.say("Second.")

    await bench.work()

    (first, *_) = await bench.events.load_after(bench.conversation_id, ORIGIN, max_entries=100)
    assert first.prev > cursor
    await check_conversation(bench, events_may_be_lost=True)


async def test_an_erasure_after_the_end_is_noticed_although_the_turn_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(answer("Done."))
    worker = bench.hire()
    await bench.say("Hello.")
    publish = bench.events.publish

    async def erase_first(conversation_id: ConversationId, entry: Entry, **options: Any) -> None:
        if any(event.type in TERMINAL_TYPES for event in entry.events):
            await bench.events.erase(conversation_id)
        await publish(conversation_id, entry, **options)

    monkeypatch.setattr(bench.events, "publish", erase_first)

    assert not await worker.run_one()
    assert bench.exits
    assert worker.parts.timeline_cache.pop(bench.conversation_id, bench.blocks[-1].hash) is None
