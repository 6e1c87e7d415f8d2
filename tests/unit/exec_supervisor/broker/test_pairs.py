"""How many pairs there may be, how they are listed, and that each is ended once and remembered for a while."""

import asyncio

import pytest
from prometheus_client import CollectorRegistry

from everturn.execution.broker_messages import PairSummary
from exec_supervisor.broker.engine import (
    EngineDown,
    EngineRefused,
    ImageMissing,
    NoCapacity,
    PairEvent,
    StartFailed,
    StartTimedOut,
)
from exec_supervisor.broker.pairs import PAIR_LIFETIME_S, Busy, Pairs, UnknownPair, UnknownProfile, build_refusal


async def test_a_profile_that_the_operator_has_not_named_is_refused(pairs: Pairs):
    with pytest.raises(UnknownProfile):
        await pairs.boot("wider", "run_1")


async def test_a_start_waits_for_a_slot_and_is_then_refused(pairs: Pairs):
    for number in range(3):
        await pairs.boot("default", f"run_{number}")
    has_room = pairs.has_room

    with pytest.raises(Busy):
        await pairs.boot("default", "run_4")

    assert not has_room


async def test_a_waiting_start_gets_the_place_of_a_pair_that_ends(pairs: Pairs):
    [first, _, _] = [(await pairs.boot("default", f"run_{number}")).pair for number in range(3)]
    waiting = asyncio.create_task(pairs.boot("default", "run_4"))

    pairs.end(first, force=True)

    assert (await waiting).pair.run_id == "run_4"


async def test_a_failed_start_frees_its_slot(engine, pairs: Pairs):
    engine.failing["start"] = EngineRefused("no such image")

    for _ in range(5):
        with pytest.raises(EngineRefused):
            await pairs.boot("default", "run_1")


async def test_a_start_that_is_cancelled_halfway_leaves_nothing(engine, pairs: Pairs):
    engine.first_words = b""
    booting = asyncio.create_task(pairs.boot("default", "run_1"))
    await engine.happened["load_images"].wait()

    booting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await booting
    await pairs.end_all()

    assert not engine.pairs


async def test_failed_starts_are_counted_by_refusal_code(engine, pairs: Pairs, registry: CollectorRegistry):
    engine.failing["start"] = EngineRefused("no such image")
    with pytest.raises(EngineRefused):
        await pairs.boot("default", "run_1")
    del engine.failing["start"]
    for number in range(3):
        await pairs.boot("default", f"run_{number}")
    with pytest.raises(Busy):
        await pairs.boot("default", "run_4")

    samples = [sample for metric in registry.collect() for sample in metric.samples]
    failures = [sample for sample in samples if sample.name == "everturn_broker_failures_total"]
    assert {sample.labels["reason"]: sample.value for sample in failures} == {"start_failed": 1, "busy": 1}


async def test_the_list_has_runs_and_states_but_no_ids(pairs: Pairs):
    await pairs.boot("default", "run_1")
    await pairs.boot("warm")

    everything, warm, runs = pairs.list({}), pairs.list({"state": "warm"}), pairs.list({"run": "run_1"})

    assert everything.total == 2
    assert warm.pairs == (PairSummary("", "warm", "warm", 0),)
    assert runs.pairs == (PairSummary("run_1", "default", "started", 0),)
    assert pairs.list({"profile": "warm", "state": "started"}).total == 0
    assert pairs.list({"pair": "p"}).total == 0


async def test_limit_hits_can_be_requested_after_the_end(engine, pairs: Pairs):
    pair = (await pairs.boot("default", "run_1")).pair
    engine.events.put_nowait(PairEvent(pair.name, "memory_limit"))

    first = await pairs.wait_for_end(pair.pair_id, force=True)
    second = await pairs.wait_for_end(pair.pair_id, force=False)

    assert first == second == ("memory",)
    with pytest.raises(UnknownPair):
        pairs.find(pair.pair_id)


async def test_ending_a_pair_needs_its_id(pairs: Pairs):
    pair = (await pairs.boot("default", "run_1")).pair

    for guess in ("", pair.name, pair.pair_id[:-1], "run_1"):
        with pytest.raises(UnknownPair):
            await pairs.wait_for_end(guess, force=True)

    assert pair.state == "started"


async def test_a_pair_is_ended_once_by_repeated_requests(engine, pairs: Pairs):
    pair = (await pairs.boot("default", "run_1")).pair

    await asyncio.gather(*(pairs.wait_for_end(pair.pair_id, force=True) for _ in range(5)))

    assert engine.calls.count("remove") == 1


async def test_an_expired_pair_is_ended(engine, pairs: Pairs):
    now = [1000.0]
    pairs._clock = lambda: now[0]
    pair = (await pairs.boot("default", "run_1")).pair
    ending = asyncio.create_task(pairs.wait_for_end(pair.pair_id, force=True))
    ending.cancel()

    pairs.end_expired()
    before = pair.state
    now[0] += PAIR_LIFETIME_S
    pairs.end_expired()
    await pairs.end_all()

    assert (before, pair.state) == ("started", "ending")


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (UnknownProfile(), "unknown_profile"),
        (UnknownPair(), "unknown_pair"),
        (Busy(), "busy"),
        (NoCapacity("0/3 nodes are available"), "busy"),
        (EngineDown(), "engine_down"),
        (EngineRefused(), "start_failed"),
        (ImageMissing(), "image_missing"),
        (StartFailed("x" * 9000), "start_failed"),
        (StartTimedOut(), "start_timeout"),
    ],
)
def test_every_failure_has_its_code(error: Exception, code: str):
    refusal = build_refusal(error)

    assert refusal.code == code
    assert len(refusal.message) <= 4000
