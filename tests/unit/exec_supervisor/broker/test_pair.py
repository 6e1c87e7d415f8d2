"""How a pair boots, what its supervisor may send first, and how it ends in any engine."""

import asyncio

import pytest
from helpers.memory_pairs import READY
from structlog.testing import capture_logs

from everturn.execution.framing import encode_frame, encode_raw
from everturn.execution.messages import Finished
from everturn.execution.records import build_message
from exec_supervisor.broker.engine import (
    EngineDown,
    EngineRefused,
    EngineTimes,
    ImageMissing,
    PairEvent,
    StartFailed,
    StartTimedOut,
)
from exec_supervisor.broker.pairs import Pairs

FINISHED = Finished("ended", "", 1, None)


async def test_a_pair_is_booted_when_its_supervisor_is_ready(engine, pairs: Pairs):
    started = await pairs.boot("default", "run_1")

    assert started.posture.launcher == "containers"
    assert started.images.executor == "sha256:executor"
    assert started.images.supervisor == "sha256:supervisor"
    assert started.pair.state == "started"


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (Finished("not_started", "the sandbox is not isolated", 0, None), "the sandbox is not isolated"),
        (b"", "no such module"),
        (encode_raw(b"tar"), "single Ready frame"),
        (READY + READY, "single Ready frame"),
        (READY + b"\0", "single Ready frame"),
        (encode_frame({"kind": "stop", "reason": "timeout"}), "invalid frame"),
        (b"\x7f\xff\xff\xffHTTP", "invalid frame"),
    ],
)
async def test_start_fails_on_any_other_first_message(engine, pairs: Pairs, words: Finished | bytes, reason: str):
    engine.first_words = b""
    booting = asyncio.create_task(pairs.boot("default", "run_1"))
    await engine.happened["started"].wait()

    engine.only.line.errors = "no such module"
    engine.only.say_raw(words if isinstance(words, bytes) else encode_frame(build_message(words)))
    engine.only.hang_up()

    with pytest.raises(StartFailed, match=reason):
        await booting


@pytest.mark.parametrize(
    "error", [EngineRefused("no room"), EngineDown("away"), ImageMissing("x"), StartFailed("gone")]
)
@pytest.mark.parametrize("call", ["start", "load_images"])
async def test_a_pair_that_cannot_be_started_is_removed(engine, pairs: Pairs, call: str, error: Exception):
    engine.failing[call] = error

    with pytest.raises(type(error)):
        await pairs.boot("default", "run_1")
    await pairs.end_all()

    assert engine.calls.count("remove") == 1


async def test_a_pair_that_is_not_ready_in_time_fails_the_start(engine, pairs: Pairs):
    engine.times = EngineTimes(boot_s=0.05)
    engine.first_words = b""

    with pytest.raises(StartTimedOut, match="did not boot in time"):
        await pairs.boot("default", "run_1")


async def test_an_executor_that_ends_while_it_boots_fails_the_start(engine, pairs: Pairs):
    engine.first_words = b""
    booting = asyncio.create_task(pairs.boot("default", "run_1"))
    await engine.happened["started"].wait()

    engine.events.put_nowait(PairEvent(engine.only.plan.name, "executor_ended", "3"))

    with pytest.raises(StartFailed, match="code 3"):
        await booting


async def test_a_warm_pair_that_sends_data_or_ends_is_unusable(engine, pairs: Pairs):
    pair = (await pairs.boot("default")).pair
    spoken = asyncio.Event()
    pair.call_when_unusable(spoken.set)
    before = pair.is_unusable

    engine.only.hang_up()
    await spoken.wait()

    assert (before, pair.is_unusable, pair.state) == (False, True, "warm")


async def test_messages_after_the_boot_are_read_in_order(engine, pairs: Pairs):
    pair = (await pairs.boot("default", "run_1")).pair

    supervisor = engine.only
    supervisor.say(FINISHED)
    first = await pair.read()
    supervisor.hang_up()

    assert first == encode_frame(build_message(FINISHED))
    assert await pair.read() == b""


async def test_a_pair_that_is_ended_gently_may_end_by_itself_before_it_is_removed(engine, pairs: Pairs):
    pair = (await pairs.boot("default", "run_1")).pair
    engine.stubborn = True

    ending = pairs.end(pair)
    await engine.happened["end of stdin"].wait()
    before = "remove" in engine.calls
    engine.end(pair.name)
    async with asyncio.timeout(engine.times.end_s / 2):
        await ending

    assert (before, engine.calls.count("remove")) == (False, 1)


@pytest.mark.parametrize("force", [False, True])
async def test_a_pair_is_removed_after_its_time_to_end_or_at_once(engine, pairs: Pairs, force: bool):
    engine.times = EngineTimes(end_s=0.05)
    engine.stubborn = True
    pair = (await pairs.boot("default", "run_1")).pair

    await pairs.end(pair, force=force)

    assert not engine.pairs


async def test_what_could_not_be_removed_is_logged_and_left_to_the_reaper(engine, pairs: Pairs):
    pair = (await pairs.boot("default", "run_1")).pair
    engine.failing["remove"] = EngineDown("away")

    with capture_logs() as lines, pytest.raises(EngineDown):
        await pairs.wait_for_end(pair.pair_id, force=True)

    assert pairs.names == frozenset()
    assert [line["problems"] for line in lines if "problems" in line] == [[str(EngineDown("away"))]]
    engine.pairs.clear()


async def test_a_removal_that_takes_too_long_is_left_to_the_reaper(engine, pairs: Pairs, monkeypatch):
    engine.times = EngineTimes(removal_s=0.05)
    pair = (await pairs.boot("default", "run_1")).pair

    async def remove(_engine, _name: str) -> None:
        await asyncio.Event().wait()

    with monkeypatch.context() as patched, capture_logs() as lines:
        patched.setattr(type(engine), "remove", remove)
        assert not await pair.end(force=True)

    assert [line["problems"] for line in lines] == [["it took more than 0.05 s"]]
