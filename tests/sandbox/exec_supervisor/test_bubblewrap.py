"""What a run owns, as its worker sees it: the real supervisor is started and talked to in its own protocol."""

import asyncio
import os
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from chat_proc.sandbox.local_supervisor import load_interpreter, open_supervisor
from chat_proc.sandbox.results import pack_inputs
from chat_proc.sandbox.supervised import SupervisorFailed, run_supervised
from everturn.execution.messages import Boot, Capability, GatewayCall, Launch, RunLimits, ToolReply, UidRange

COMMAND = [sys.executable, "-I", "-m", "exec_supervisor"]
PYTHON = Path(__file__).parents[3] / ".venv-sandbox" / "bin" / "python"


async def refuse(call: GatewayCall) -> ToolReply:
    return ToolReply(call.id, False)


async def boot_with(**changes: object) -> Boot:
    values: dict[str, object] = {
        "limits": RunLimits(),
        "interpreter": await load_interpreter(PYTHON),
        "executable": shutil.which("bwrap"),
        "run_dir": f"/tmp/everturn-run-room-{os.getpid()}",
        "uids": UidRange(20_000, 20_999),
    }
    return Boot(**(values | changes))


def exists(place: str) -> bool:
    return Path(place).exists()


async def test_the_room_is_gone_after_the_run(bubblewrap_sandbox):
    boot = await boot_with()
    launch = Launch("room", "pass", (), 5.0, boot.limits, Capability(), "n")

    async with open_supervisor(COMMAND, boot) as booted:
        done = await run_supervised(booted, launch, list(pack_inputs({})), refuse, asyncio.Event())

    assert done.finished.verdict == "ended"
    posture = done.finished.posture
    assert posture == replace(bubblewrap_sandbox.posture, outer_uid=posture.outer_uid, user=posture.user)
    assert not exists(boot.run_dir)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"run_dir": "/nowhere/run"}, "FileNotFoundError"),
        ({"run_dir": "/tmp"}, "FileExistsError"),
        ({"executable": "/nowhere/bwrap"}, "FileNotFoundError"),
        ({"executable": "/bin/false"}, "the executor ended"),
        ({"executable": "/bin/echo"}, "raw_not_allowed|too_large|not_json|the executor ended"),
    ],
)
async def test_a_room_that_can_not_be_made_says_why(bubblewrap_sandbox, changes, message):
    boot = await boot_with(**changes)

    with pytest.raises(SupervisorFailed, match=message):
        async with open_supervisor(COMMAND, boot):
            pass

    assert boot.run_dir == "/tmp" or not exists(boot.run_dir)
