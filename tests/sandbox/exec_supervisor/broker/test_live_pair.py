"""A real pair, as the engine shows it and as its line is used: its walls, its one run, and all the ways it can end."""

import asyncio
import re
import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

import docker
import pytest
from helpers.broker import OwnBroker
from helpers.calling import Caller
from helpers.waiting import wait_until
from leaks.engines import EngineView

from everturn.execution.broker_messages import (
    Attach,
    BrokerRefusal,
    KillPair,
    ListPairs,
    PairEnded,
    RemovePair,
    StartPair,
)
from everturn.execution.framing import FrameDecoder, FrameStream
from everturn.execution.messages import MIB, PIPE_FRAME_BYTES, Capability, Finished, InputsEnd, Launch, RunLimits
from everturn.execution.records import build_message, parse_message

Call = Callable[[], AbstractAsyncContextManager[Caller]]
GONE_WITHIN_S = 2.0
SLACK = 5
EAT_MEMORY = "eaten = []\nwhile True:\n    eaten.append(b'x' * (8 << 20))\n"


async def run_program(caller: Caller, program: str, limits: RunLimits) -> Finished:
    """Over an attached connection; its outputs are passed over."""
    line = FrameStream(caller.reader, caller.writer, FrameDecoder(PIPE_FRAME_BYTES, allow_raw=True))
    await line.send(build_message(Launch("e1", program, (), 20.0, limits, Capability(), "nonce")))
    await line.send(build_message(InputsEnd()))
    while (frame := await line.receive()) is not None:
        if isinstance(frame, dict):
            return parse_message(frame, Finished)
    raise AssertionError("the line ended before the run did")


@pytest.mark.slow
@pytest.mark.parametrize("layout", ["combined"], indirect=True)
async def test_the_engine_shows_the_walls_of_one_container(call: Call, client: docker.APIClient, broker: OwnBroker):
    async with call() as caller:
        started = await caller.start("other", "run_walls")
        found = inspect(client, broker, "combined")

    assert started.executor_image == started.supervisor_image == found["Image"]
    assert found["HostConfig"].pop("CapAdd") == ["SETGID", "SETUID", "SETPCAP"]
    found["HostConfig"]["CapAdd"] = None
    check_walls(found)
    assert not [entry for entry in found["Mounts"] if entry["Type"] != "tmpfs"]
    assert found["HostConfig"]["Memory"] == 1088 * MIB
    assert list(found["NetworkSettings"]["Networks"]) == ["none"]


@pytest.mark.parametrize("layout", ["pair"], indirect=True)
async def test_the_engine_shows_the_walls_of_both_halves(
    call: Call, client: docker.APIClient, broker: OwnBroker, images: dict[str, str]
):
    async with call() as caller:
        started = await caller.start("other", "run_walls")
        supervisor = inspect(client, broker, "supervisor")
        executor = inspect(client, broker, "executor")
        check_volume(client.inspect_volume(supervisor["Mounts"][0]["Name"]))

    for found in (supervisor, executor):
        check_walls(found)
        check_mount(found)
    assert started.executor_image == executor["Image"]
    assert started.supervisor_image == supervisor["Image"]
    assert executor["Config"]["Image"] == images["executor_image"]
    check_executor(executor)
    check_supervisor(supervisor)


def inspect(client: docker.APIClient, broker: OwnBroker, role: str) -> dict[str, Any]:
    """The one container of this run and role."""
    labels = [broker.label, "everturn.run=run_walls", f"everturn.role={role}"]
    [found] = client.containers(filters={"label": labels})
    return client.inspect_container(found["Id"])


def check_walls(found: dict[str, Any]) -> None:
    """What holds for all containers, whatever the profile."""
    host = found["HostConfig"]
    assert host["Privileged"] is False
    assert host["CapDrop"] == ["ALL"]
    assert not host["CapAdd"]
    assert host["ReadonlyRootfs"] is True
    assert host["AutoRemove"] is True
    assert host["LogConfig"]["Type"] == "none"
    assert not host["Binds"]
    assert not host["VolumesFrom"]
    assert not host["Devices"]
    assert not host["DeviceRequests"]
    assert not host["PortBindings"]
    assert not host["Links"]
    assert (host["PidMode"], host["UTSMode"], host["UsernsMode"]) == ("", "", "")
    assert host["IpcMode"] == "none"
    assert host["CgroupnsMode"] == "private"
    assert not host["OomKillDisable"]
    assert host["MemorySwap"] == host["Memory"] > 0
    assert host["MaskedPaths"]
    assert host["ReadonlyPaths"]
    [no_new_privileges, seccomp] = host["SecurityOpt"]
    assert no_new_privileges == "no-new-privileges"
    assert '"io_uring' not in seccomp
    assert '"defaultAction":"SCMP_ACT_ERRNO"' in seccomp
    assert found["State"]["Running"] is True
    assert found["Config"]["Hostname"] == "sandbox"
    assert not any("KEY" in entry or "TOKEN" in entry for entry in found["Config"]["Env"])


def check_mount(found: dict[str, Any]) -> None:
    [mount] = [entry for entry in found["Mounts"] if entry["Type"] != "tmpfs"]
    assert (mount["Type"], mount["Driver"], mount["Destination"]) == ("volume", "local", "/run/everturn")


def check_volume(found: dict[str, Any]) -> None:
    assert found["Driver"] == "local"
    assert not found["Options"]
    assert found["Labels"]["everturn.run"] == "run_walls"


def check_executor(found: dict[str, Any]) -> None:
    host = found["HostConfig"]
    uid, group = found["Config"]["User"].split(":")
    assert (int(uid) in range(21_000, 23_000), group) == (True, "1001")
    assert found["Config"]["OpenStdin"] is False
    assert host["NetworkMode"] == "none"
    assert list(found["NetworkSettings"]["Networks"]) == ["none"]
    assert host["Memory"] == 1024 * MIB
    assert host["NanoCpus"] == 500_000_000
    assert host["Runtime"] == "runc"
    assert host["PidsLimit"] == 24
    assert sorted(host["Tmpfs"]) == ["/workspace/out", "/workspace/work"]
    for options in host["Tmpfs"].values():
        assert {"nosuid", "nodev", "noexec", "nr_inodes=99", f"uid={uid}"} <= set(options.split(","))
    limits = {entry["Name"]: entry["Hard"] for entry in host["Ulimits"]}
    assert limits["nofile"] == 164
    assert limits["core"] == 0
    [mount] = [entry for entry in found["Mounts"] if entry["Type"] == "volume"]
    assert mount["RW"] is False


def check_supervisor(found: dict[str, Any]) -> None:
    host = found["HostConfig"]
    assert found["Config"]["User"] == "1002:1002"
    assert (found["Config"]["OpenStdin"], found["Config"]["StdinOnce"]) == (True, True)
    assert host["NetworkMode"] == "none"
    assert host["GroupAdd"] == ["1001"]
    assert not host.get("Tmpfs")


async def test_a_program_runs_over_the_line_and_the_pair_is_gone_afterwards(call: Call):
    async with call() as caller, call() as other:
        started = await caller.start_and_attach()
        finished = await run_program(caller, "print('hello from inside')", started.limits)
        ended = await other.ask(RemovePair(started.pair_id))

    assert finished.verdict == "ended"
    assert finished.report is not None
    assert finished.report.stdout_tail == "hello from inside\n"
    assert ended == PairEnded(())


async def test_the_engine_reports_exhausted_memory(call: Call):
    async with call() as caller, call() as other:
        started = await caller.start_and_attach()
        # The program itself may use all the address space it likes: it is the control group that has to step in.
        await run_program(caller, EAT_MEMORY, RunLimits(memory_bytes=8 << 30))
        ended = await other.ask(RemovePair(started.pair_id))

    assert ended == PairEnded(("memory",))


async def test_a_pair_ends_within_two_seconds_after_its_caller(call: Call):
    async with call() as caller, call() as other:
        started = await caller.start_and_attach()
        cut = time.monotonic()
        caller.writer.write_eof()
        rest = await caller.reader.read()
        await other.ask(RemovePair(started.pair_id))

    assert rest == b""
    assert time.monotonic() - cut < SLACK * GONE_WITHIN_S


async def test_a_pair_can_be_killed_while_its_program_runs(call: Call):
    async with call() as caller, call() as other:
        started = await caller.start_and_attach()
        running = asyncio.create_task(run_program(caller, "while True: pass", started.limits))
        attached = await other.ask(ListPairs({"state": "attached"}))

        ended = await other.ask(KillPair(started.pair_id))
        await asyncio.wait((running,))

    assert attached.total == 1
    assert ended == PairEnded(())
    # Both halves are killed side by side: where the executor goes first, its supervisor may still say that it died.
    assert isinstance(running.exception(), AssertionError | ConnectionError) or running.result().verdict == "died"


async def test_a_caller_that_leaves_while_its_pair_boots_leaves_nothing(
    call: Call, view: EngineView, shape: tuple[int, int]
):
    async with call() as caller:
        await caller.send(StartPair("default", "run_hasty"))
        await wait_until(lambda: len(view.load_containers()) > shape[0])


@pytest.mark.parametrize(
    ("profile", "code", "message"),
    [
        ("no-image", "image_missing", "No such image"),
        ("wrong-image", "start_failed", "the executor|exec_supervisor.combined"),
        ("no-runtime", "start_failed", "no-such-runtime"),
        ("unknown", "unknown_profile", "unknown"),
    ],
)
async def test_what_cannot_be_started_is_refused_with_its_reason(call: Call, profile: str, code: str, message: str):
    async with call() as caller:
        refused = await caller.ask(StartPair(profile, "run_1"))
        again = await caller.ask(Attach("anything"))

    assert isinstance(refused, BrokerRefusal)
    assert refused.code == code
    assert re.search(message, refused.message)
    assert again.code == "not_attachable"
