"""What a run owns, as its worker sees it: the real supervisor is started and talked to in its own protocol."""

import asyncio
import os
import shutil
import sys
from pathlib import Path

import pytest

from chat_proc.sandbox.client import run_supervised
from chat_proc.sandbox.interpreter import load_interpreter
from chat_proc.sandbox.packing import pack_inputs
from everturn.wire.execution import Capability, GatewayCall, Launch, RunLimits, ToolReply
from exec_supervisor.supervisor.cgroups import Cgroup
from exec_supervisor.supervisor.mounts import Stage
from exec_supervisor.supervisor.room import build_posture, limit_address_space

COMMAND = [sys.executable, "-I", "-m", "exec_supervisor"]
PYTHON = Path(__file__).parents[4] / ".venv-sandbox" / "bin" / "python"


async def refuse(call: GatewayCall) -> ToolReply:
    return ToolReply(call.id, False)


async def launch_with(**changes: object) -> Launch:
    values: dict[str, object] = {
        "execution_id": f"room-{os.getpid()}",
        "program": "pass",
        "outputs": (),
        "timeout_s": 5.0,
        "limits": RunLimits(),
        "capability": Capability(),
        "nonce": "n",
        "interpreter": await load_interpreter(PYTHON),
        "bwrap": shutil.which("bwrap"),
        "run_dir": f"/tmp/everturn-run-room-{os.getpid()}",
        "sandbox_uid": 1001,
    }
    return Launch(**(values | changes))


def exists(place: str) -> bool:
    return Path(place).exists()


async def test_the_room_is_gone_after_the_run(sandbox):
    launch = await launch_with()

    done = await run_supervised(COMMAND, launch, list(pack_inputs({})), refuse, asyncio.Event())

    assert done.finished.verdict == "ended"
    assert done.finished.posture == sandbox.posture
    assert not exists(launch.run_dir)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"run_dir": "/nowhere/run"}, "FileNotFoundError"),
        ({"run_dir": "/tmp"}, "FileExistsError"),
        ({"bwrap": "/nowhere/bwrap"}, "FileNotFoundError"),
        ({"bwrap": "/bin/false"}, "the executor ended"),
        ({"bwrap": "/bin/echo"}, "raw_not_allowed|too_large|not_json|the executor ended"),
    ],
)
async def test_a_room_that_can_not_be_made_is_a_run_that_did_not_start(sandbox, changes, told):
    launch = await launch_with(**changes)

    done = await run_supervised(COMMAND, launch, list(pack_inputs({})), refuse, asyncio.Event())

    assert done.finished.verdict == "not_started"
    assert any(part in done.finished.detail for part in told.split("|"))
    assert launch.run_dir == "/tmp" or not exists(launch.run_dir)


def test_the_posture_follows_what_was_made(tmp_path):
    bare = build_posture(1001, Stage((), ""), None)
    full = build_posture(1001, Stage((), "", "/w", "/o"), Cgroup(2, tmp_path, tmp_path))

    assert (bare.memory, bare.disk) == (
        "RLIMIT_AS and a watchdog on the sum of resident memory",
        "tmpfs limited in bytes",
    )
    assert (full.memory, full.disk) == ("cgroup v2 and RLIMIT_AS", "tmpfs limited in bytes and inodes")


async def test_the_address_space_is_wider_than_the_memory_limit(sandbox):
    launch = await launch_with(limits=RunLimits(memory_bytes=1000))

    assert limit_address_space(launch) > 1000
