"""F16: a wall that is missing only after the worker has started. Runs then fail, typed; none is ever unconfined."""

import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from chat_proc.sandbox.bubblewrap import open_bubblewrap_sandbox
from chat_proc.sandbox.port import RunRequest, RunResult
from everturn.execution.messages import GatewayCall, ToolReply
from everturn.execution.profiles import load_profiles

PYTHON = Path(__file__).parents[3] / ".venv-sandbox" / "bin" / "python"
WITHOUT_SECCOMP = """#!/bin/sh
for argument; do
    shift
    if [ "$skip" ]; then skip=
    elif [ "$argument" = --seccomp ]; then skip=yes
    else set -- "$@" "$argument"; fi
done
exec {bwrap} "$@"
"""
# What a careless fallback would do: start what comes after the walls.
WITHOUT_ANY = """#!/bin/sh
while [ "$1" != -- ]; do shift; done
shift
exec "$@"
"""
REFUSING = """#!/bin/sh
echo "bwrap: prctl(PR_SET_SECCOMP): Invalid argument" >&2
exit 1
"""


class Command:
    """The `bwrap` that a sandbox was opened with, which a test may change afterwards."""

    def __init__(self, folder: str) -> None:
        self.real = shutil.which("bwrap") or ""
        self._place = Path(folder) / "bwrap"

    def restore(self) -> None:
        self._place.unlink(missing_ok=True)
        self._place.symlink_to(self.real)

    def replace(self, script: str | None) -> None:
        self._place.unlink()
        if script is not None:
            self._place.write_text(script.replace("{bwrap}", self.real))
            self._place.chmod(0o755)


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch) -> Iterator[Command]:
    # Not under pytest's folder, which the sandbox's user can't enter.
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        Path(folder).chmod(0o755)
        found = Command(folder)
        found.restore()
        monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
        yield found


async def refuse(call: GatewayCall) -> ToolReply:
    return ToolReply(call.id, False, None, "not_allowed", "")


async def run_on(sandbox: Any, program: str) -> RunResult:
    return await sandbox.run(RunRequest("vanished", "turn_1", program, ()), refuse)


async def test_a_wall_that_vanishes_fails_the_run_and_comes_back_with_the_wall(sandbox, command, tmp_path):
    if sandbox.posture.launcher != "bubblewrap":
        pytest.skip("containers have their own tests of this fault")
    mine = await open_bubblewrap_sandbox(PYTHON, load_profiles(""))
    trace = tmp_path / "unconfined"
    tmp_path.chmod(0o777)
    program = f"open({str(trace)!r}, 'w').write('was here')"
    reported = {
        WITHOUT_SECCOMP: "no seccomp filter is loaded",
        # Or it can not even read the interpreter, where that lies in a closed home.
        WITHOUT_ANY: "the sandbox is not isolated|Permission denied",
        REFUSING: "PR_SET_SECCOMP",
        None: "bwrap",
    }

    for script, reason in reported.items():
        command.replace(script)
        result = await run_on(mine, program)
        command.restore()

        assert (result.ok, result.error.code, result.error.where) == (False, "sandbox_failed", "sandbox")
        assert re.search(reason, result.error.message)
        assert result.record.posture is None
        assert not trace.exists()
    assert (await run_on(mine, "print(1)")).ok
