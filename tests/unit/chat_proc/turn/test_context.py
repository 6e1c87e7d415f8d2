import asyncio

import pytest
from turn_harness.harness import ANN, LEASE_S, Bench, BenchWorker

from chat_proc.agent.opening import draft_opening
from chat_proc.stream.emitter import Emitter, EventNumbering
from chat_proc.turn.inbox import TurnInbox
from chat_proc.turn.leased import CommitContent, LeasedTurn, TurnActivity, TurnEnd
from chat_proc.turn.manifests import ManifestBuilder, ManifestWriter, StoredPreambles
from everturn.core.errors import StaleFence, Unavailable
from everturn.core.retry import RetryPolicy
from everturn.events.model import ConvStatus, ConvTitle
from everturn.timeline.blocks import BlockDraft, BlockType, NoticeBody
from everturn.timeline.turns import Outcome, SignalKind, TurnStatus, TurnUsage
from everturn.turns.model import UsageEvent
from everturn.turns.ports import InboxMoved

USAGE = UsageEvent("m", "decision", 10, 2, 1, 0, 0.5, False)


async def lease(bench: Bench, worker: BenchWorker) -> tuple[LeasedTurn, Emitter]:
    claim = await worker.leases.try_claim(bench.conversation_id)
    assert claim is not None
    assert claim.turn_id is not None
    timelines = worker.timelines
    start = await timelines.load_start(ANN, bench.conversation_id, claim.turn_id)
    row = start.turn
    where = {"conversation_id": bench.conversation_id, "turn_id": row.id, "fence": claim.lease.fence}
    emitter = Emitter(worker.writer, EventNumbering(bench.clock, **where, after=claim.cursor))
    turn = LeasedTurn(
        claim,
        start,
        timelines=timelines,
        emitter=emitter,
        inbox=TurnInbox(timelines, ANN, row.id, claim.inbox_seq, report=lambda _: None, retries=RetryPolicy((0.0,))),
        clock=bench.clock,
        claimed_at_s=bench.clock.monotonic(),
        manifests=ManifestWriter(
            bench.objects,
            conversation_id=bench.conversation_id,
            turn_id=row.id,
            preambles=StoredPreambles(),
            builder=ManifestBuilder(),
        ),
        lease_age_s=lambda: 0.0,
        approvals=worker.approvals,
        activity=TurnActivity(bench.clock.monotonic),
        retries=RetryPolicy((0.0,)),
    )
    return turn, emitter


async def begin() -> tuple[Bench, BenchWorker, LeasedTurn, Emitter]:
    bench = Bench(tick_ms=0)
    await bench.say("Hello.")
    worker = bench.hire()
    turn, emitter = await lease(bench, worker)
    await turn.commit(draft_opening(turn.turn, (), {}, turn.now(), lambda _: ()))
    return bench, worker, turn, emitter


def notice(turn: LeasedTurn, round_number: int = 1) -> CommitContent:
    body = NoticeBody(code="x", text="y")
    return CommitContent(drafts=(BlockDraft(turn.turn_id, round_number, BlockType.NOTICE, "ref", body, turn.now()),))


async def test_commits_follow_one_another() -> None:
    bench, _, turn, _ = await begin()

    await turn.commit(notice(turn))
    await turn.commit(notice(turn, 2))

    assert [block.type.value for block in bench.blocks][-2:] == ["react.notice", "react.notice"]
    assert list(turn.blocks) == bench.blocks
    assert turn.progress.last_round == 2


async def test_the_cursor_of_a_commit_is_the_last_event_before_it() -> None:
    bench, _, turn, emitter = await begin()
    turn.emit(ConvStatus(state="running"))
    before = emitter.seal()

    await turn.commit(CommitContent(drafts=notice(turn).drafts, after=((ConvTitle(title="after"), None),)))

    assert bench.platform.conversations[bench.conversation_id].cursor == before
    assert emitter.seal() > before


async def test_a_recorded_call_goes_with_the_next_commit_and_counts_at_once() -> None:
    bench, _, turn, _ = await begin()

    turn.record_usage(USAGE)
    assert bench.platform.usage == []
    assert turn.spent.usage.input_tokens == 10
    await turn.commit(notice(turn))
    await turn.commit(notice(turn))

    assert [event for _, event in bench.platform.usage] == [USAGE]
    assert turn.spent.usage == TurnUsage(input_tokens=10, output_tokens=2, cache_read_tokens=1, cost_usd=0.5)


async def test_a_commit_is_tried_again_while_the_database_is_away() -> None:
    bench, worker, turn, _ = await begin()
    worker.timelines.failures = [Unavailable()]

    await turn.commit(notice(turn))

    assert bench.blocks[-1].type is BlockType.NOTICE


async def test_a_commit_that_can_not_be_made_leaves_the_turn_as_it_was() -> None:
    bench, worker, turn, _ = await begin()
    worker.timelines.failures = [Unavailable(), Unavailable()]
    blocks = list(turn.blocks)

    with pytest.raises(Unavailable):
        await turn.commit(notice(turn))

    assert list(turn.blocks) == blocks == bench.blocks


async def test_a_stale_fence_writes_nothing() -> None:
    bench, _, turn, _ = await begin()
    bench.expire_lease()
    assert await bench.hire().leases.try_claim(bench.conversation_id) is not None
    blocks = list(bench.blocks)

    with pytest.raises(StaleFence):
        await turn.commit(notice(turn))

    assert bench.blocks == blocks


async def test_an_end_without_a_current_inbox_read_is_refused() -> None:
    bench, _, turn, _ = await begin()
    await turn.inbox.load_unseen()
    await bench.signal(SignalKind.FOLLOWUP, "more")

    with pytest.raises(InboxMoved):
        await turn.close(TurnEnd(Outcome.COMPLETED))

    assert len(await turn.inbox.load_unseen()) == 1
    assert turn.turn.status is TurnStatus.RUNNING


async def test_an_end_sums_up_the_turn() -> None:
    bench, _, turn, _ = await begin()
    turn.record_usage(USAGE)
    await turn.commit(notice(turn, 3))
    bench.clock.advance(2)
    await turn.inbox.load_unseen()

    await turn.close(TurnEnd(Outcome.COMPLETED, content=CommitContent(usage=(USAGE,))))

    (exit_body,) = bench.exits
    assert (exit_body.rounds, exit_body.elapsed_ms, exit_body.usage.input_tokens) == (3, 2000, 20)
    assert bench.turn_rows[0].status is TurnStatus.COMPLETED
    assert bench.platform.conversations[bench.conversation_id].title == "Hello."


async def test_the_time_in_the_queue_and_without_a_worker_is_not_spent() -> None:
    bench, worker, turn, _ = await begin()
    bench.clock.advance(10)
    assert turn.spent.leased_s == 10
    await worker.leases.release(turn.lease, requeue=True)
    bench.clock.advance(2_400)

    second, _ = await lease(bench, bench.hire())
    at_once = second.spent.leased_s
    bench.clock.advance(2_400)
    third, _ = await lease(bench, bench.hire())
    bench.clock.advance(1)
    await third.inbox.load_unseen()
    await third.close(TurnEnd(Outcome.COMPLETED))

    assert at_once == 10
    # The second worker died: it may have worked until its lease ran out.
    assert third.spent.leased_s == 10 + LEASE_S + 1
    (exit_body,) = bench.exits
    assert exit_body.elapsed_ms == (10 + 2_400 + 2_400 + 1) * 1_000


async def test_a_rewind_shows_the_committed_state_with_the_signals() -> None:
    bench, _, turn, emitter = await begin()
    await bench.signal(SignalKind.FOLLOWUP, "more")
    await turn.inbox.load_unseen()
    publishing = asyncio.create_task(emitter.run())

    turn.rewind()
    emitter.close()
    await publishing

    rewind = (await bench.published())[-1].data.model_dump()
    assert [signal["text"] for signal in rewind["turn"]["signals"]] == ["more"]
