"""How a pair boots, what its supervisor may send first, and that nothing is left in any case."""

import asyncio

import pytest
from structlog.testing import capture_logs

from everturn.execution.framing import encode_frame, encode_raw
from everturn.execution.messages import Finished
from everturn.execution.profiles import ExecutionProfile
from everturn.execution.records import build_message
from exec_supervisor.broker.bodies import PairLabels, name_container
from exec_supervisor.broker.container_pair import PairPlan, StartFailed
from exec_supervisor.broker.docker_engine import EngineDown, EngineRefused, NotThere
from exec_supervisor.broker.pairs import Pairs
from exec_supervisor.broker.seccomp_profile import build_profile

FINISHED = Finished("ended", "", 1, None)


async def test_a_pair_is_booted_when_its_supervisor_is_ready(engine, pairs: Pairs):
    started = await pairs.boot("default", "run_1")

    assert started.posture.launcher == "containers"
    assert started.executor_image == "sha256:executor"
    assert started.supervisor_image == "sha256:supervisor"
    assert started.pair.state == "started"
    assert sorted(engine.calls[1:]) == sorted(
        ["create", "create", "attach", "start", "start", "load_image", "load_image"]
    )


async def test_the_supervisor_is_attached_before_it_is_started(engine, pairs: Pairs):
    engine.failing["start supervisor"] = EngineRefused("no")

    with pytest.raises(EngineRefused):
        await pairs.boot("default", "run_1")

    assert "attach" in engine.calls


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (Finished("not_started", "the sandbox is not isolated", 0, None), "the sandbox is not isolated"),
        (b"", "no such module"),
        (encode_raw(b"tar"), "single Ready frame"),
        (encode_frame({"kind": "stop", "reason": "timeout"}), "invalid frame"),
        (b"\x7f\xff\xff\xffHTTP", "invalid frame"),
    ],
)
async def test_start_fails_on_any_other_first_message(engine, pairs: Pairs, words: Finished | bytes, reason: str):
    data = words if isinstance(words, bytes) else encode_frame(build_message(words))
    engine.first_words = b""
    booting = asyncio.create_task(pairs.boot("default", "run_1"))
    supervisor = await started_supervisor(engine)

    supervisor.say_raw(b"\x02\0\0\0\0\0\0\x0eno such module" + b"\x01\0\0\0" + len(data).to_bytes(4) + data)
    supervisor.hang_up()

    with pytest.raises(StartFailed, match=reason):
        await booting


async def test_more_than_a_ready_frame_fails_the_start(engine, pairs: Pairs):
    engine.first_words = b"\x01\0\0\0\0\0\0\x05\0\0\0\x01x" + engine.first_words

    with pytest.raises(StartFailed):
        await pairs.boot("default", "run_1")


async def test_only_a_pair_that_nobody_waits_for_imports_modules_ahead(engine, pairs: Pairs):
    warm = (await pairs.boot("warm")).pair.name
    cold = (await pairs.boot("warm", "run_1")).pair.name

    commands = [engine.bodies[name_container(name, "executor")]["Cmd"] for name in (warm, cold)]

    assert commands == [["--preload", "numpy"], []]


@pytest.mark.parametrize("error", [EngineRefused("no such image"), EngineDown("away"), NotThere("gone")])
@pytest.mark.parametrize("call", ["create executor", "create supervisor", "attach", "start executor"])
async def test_nothing_is_left_after_any_refused_engine_call(engine, pairs: Pairs, call: str, error: Exception):
    engine.failing[call] = error

    with pytest.raises(type(error)):
        await pairs.boot("default", "run_1")

    engine.failing.clear()


async def test_an_executor_that_dies_while_it_boots_fails_the_start(engine, pairs: Pairs):
    engine.first_words = b""
    booting = asyncio.create_task(pairs.boot("default", "run_1"))
    await started_supervisor(engine)

    engine.tell("die", engine.find("executor"), exitCode="3")

    with pytest.raises(StartFailed, match="code 3"):
        await booting


async def test_a_warm_pair_that_sends_data_or_ends_is_unusable(engine, pairs: Pairs):
    pair = (await pairs.boot("default")).pair
    spoken = asyncio.Event()
    pair.call_when_unusable(spoken.set)
    before = pair.is_unusable

    engine.containers[engine.find("supervisor")].hang_up()
    await spoken.wait()

    assert (before, pair.is_unusable, pair.state) == (False, True, "warm")


async def test_messages_after_the_boot_are_read_in_order(engine, pairs: Pairs):
    pair = (await pairs.boot("default", "run_1")).pair
    supervisor = engine.containers[engine.find("supervisor")]

    supervisor.say(FINISHED)
    first = await pair.read()
    supervisor.hang_up()

    assert first == encode_frame(build_message(FINISHED))
    assert await pair.read() == b""


async def test_a_pair_that_ends_by_itself_is_not_killed(engine, pairs: Pairs):
    pair = (await pairs.boot("default", "run_1")).pair

    await pairs.end(pair)

    assert not engine.containers
    assert "kill_and_remove" not in engine.calls


async def test_a_pair_is_killed_two_seconds_after_its_lifeline_is_cut(engine, pairs: Pairs):
    engine.stubborn = True
    pair = (await pairs.boot("default", "run_1")).pair

    await pairs.end(pair)

    assert engine.calls.count("kill_and_remove") == 2


async def test_the_reaper_removes_what_the_engine_could_not(engine, pairs: Pairs):
    pair = (await pairs.boot("default", "run_1")).pair
    engine.failing["kill_and_remove"] = EngineDown("away")

    with pytest.raises(EngineDown):
        await pairs.wait_for_end(pair.pair_id, force=True)

    assert pairs.names == frozenset()
    engine.containers.clear()
    engine.volumes.clear()


async def test_a_failed_removal_waits_for_that_of_the_other_container(engine, pairs: Pairs, monkeypatch):
    pair = (await pairs.boot("default", "run_1")).pair
    supervisor = name_container(pair.name, "supervisor")
    remove = type(engine).kill_and_remove

    async def remove_slowly(engine, name: str) -> None:
        await asyncio.sleep(0.05 if name == supervisor else 0)
        await remove(engine, name)

    monkeypatch.setattr(type(engine), "kill_and_remove", remove_slowly)
    engine.failing["kill_and_remove executor"] = EngineRefused("busy")

    assert not await pair.end(force=True)
    assert supervisor not in engine.containers
    engine.failing.clear()


async def test_both_failed_removals_are_logged(engine, pairs: Pairs):
    pair = (await pairs.boot("default", "run_1")).pair
    engine.failing["kill_and_remove executor"] = EngineRefused("busy")
    engine.failing["kill_and_remove supervisor"] = EngineDown("away")

    with capture_logs() as lines:
        assert not await pair.end(force=True)

    [line] = lines
    assert len(line["problems"]) == 2
    assert "executor" in line["problems"][0]
    assert "away" in line["problems"][1]
    engine.failing.clear()


async def started_supervisor(engine):
    await engine.happened["start supervisor"].wait()
    return engine.containers[engine.find("supervisor")]


@pytest.mark.parametrize(("network", "families"), [("none", {1}), ("bridge", {1, 2, 10, 16})])
def test_only_a_supervisor_with_a_network_may_open_internet_sockets(network: str, families: set[int]):
    profile = ExecutionProfile(network_mode=network)

    plan = PairPlan(PairLabels("b1", "p1", "default", "run_1", 5), profile, build_profile(), 21_000)

    assert families_of(plan.supervisor_seccomp) == families
    assert families_of(plan.seccomp) == {1}


def families_of(seccomp) -> set[int]:
    rules = [rule for rule in seccomp["syscalls"] if rule["names"] == ["socket"]]
    return {rule["args"][0]["value"] for rule in rules}
