"""The bubblewrap launcher where less is to be had: no control group, a closed folder, a part missing."""

import asyncio
import json
import os
import shutil
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest

from chat_proc.sandbox.bubblewrap import open_bubblewrap_sandbox
from chat_proc.sandbox.launching import SupervisedSandbox
from chat_proc.sandbox.opening import ExecutionChoice, OpenedSandbox, open_sandbox
from chat_proc.sandbox.port import ContractItem, RunRequest, RunResult, SandboxUnavailable
from everturn.execution.messages import MIB, GatewayCall, RunLimits, ToolReply
from everturn.execution.profiles import ExecutionProfile, choose_profiles, load_profiles

PROFILES = {
    "default": ExecutionProfile(),
    "small": ExecutionProfile(limits=RunLimits(memory_bytes=200 * MIB, processes=20)),
}
# Hides the control groups from the supervisor by mounting over them in a namespace of its own.
WITHOUT_CGROUPS = (
    "/usr/bin/unshare",
    "--mount",
    "/bin/sh",
    "-c",
    'mount -t tmpfs none /sys/fs/cgroup && exec "$@"',
    "sh",
    sys.executable,
    "-I",
    "-m",
    "exec_supervisor",
)

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can hide control groups and make foreign folders")


@pytest.fixture(scope="module")
def plain_sandbox(bubblewrap_sandbox, repository) -> SupervisedSandbox:
    """A sandbox whose supervisor finds no control groups."""
    python = repository / ".venv-sandbox" / "bin" / "python"
    return asyncio.run(open_bubblewrap_sandbox(python, PROFILES, supervisor=WITHOUT_CGROUPS))


@pytest.fixture(scope="module")
def repository() -> Path:
    return Path(__file__).parents[4]


async def test_a_profile_for_containers_is_not_offered_and_takes_no_other_sandbox_instead(
    bubblewrap_sandbox, repository
):
    python = repository / ".venv-sandbox" / "bin" / "python"
    document = {"small": {}, "other": {"executor_image": "mine:1", "warm": 1}, "guarded": {"runtime": "runsc"}}
    profiles = load_profiles(json.dumps(document))
    choice = ExecutionChoice("bubblewrap", None, python, profiles, choose_profiles(profiles, ""))

    async with open_sandbox(choice) as opened:
        assert isinstance(opened, OpenedSandbox)
        result = await opened.sandbox.run(RunRequest("r", "turn_1", "pass", (), profile="guarded"), refuse)

    assert list(opened.profiles) == ["default", "small"]
    assert result.exit.by == "not_run"
    assert "its runtime 'runsc' belongs to a container engine" in result.error.message

    profiles = load_profiles('{"default": {"runtime": "runsc"}}')
    async with open_sandbox(replace(choice, profiles=profiles, offered=choose_profiles(profiles, ""))) as refused:
        assert isinstance(refused, SandboxUnavailable)
        assert "The execution profile 'default' needs containers" in refused.reason


async def run_program(sandbox: SupervisedSandbox, program: str, timeout_s: float = 6.0) -> RunResult:
    request = RunRequest(f"weak-{os.getpid()}", "turn_1", program, (ContractItem("a"),), {}, timeout_s, "small")
    return await sandbox.run(request, refuse)


async def refuse(call: GatewayCall) -> ToolReply:
    return ToolReply(call.id, False, None, "not_allowed", "")


KEEP_A = "open(OUTPUT_DIR + '/a', 'w').write('a')\n"


@needs_root
def test_the_posture_says_that_there_is_no_control_group(plain_sandbox):
    assert plain_sandbox.posture.memory == "RLIMIT_AS and a watchdog on the sum of resident memory"
    assert plain_sandbox.posture.processes == "RLIMIT_NPROC"


@needs_root
@pytest.mark.parametrize(
    "bomb",
    [
        "kept = []\nwhile True: kept.append(bytearray(b'x' * (1 << 20)))",
        "import os, time\nfor _ in range(8):\n  if os.fork() == 0: x = os.urandom(1 << 20) * 60; break\ntime.sleep(9)",
        "import mmap, time\nm = mmap.mmap(-1, 900 << 20)\nfor i in range(0, len(m), 4096): m[i] = 1\ntime.sleep(9)",
    ],
    ids=["one process", "many processes", "shared memory"],
)
async def test_the_watchdog_ends_what_takes_too_much_memory(plain_sandbox, bomb):
    result = await run_program(plain_sandbox, KEEP_A + bomb)

    assert result.error.code == "memory_limit"
    assert result.limits_hit == ("memory",)
    assert [artifact.filepath for artifact in result.artifacts] == ["a"]


@needs_root
async def test_a_fork_bomb_is_held_by_the_limit_on_processes(plain_sandbox):
    bomb = "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass"

    result = await run_program(plain_sandbox, KEEP_A + bomb, 1.5)

    assert result.error.code == "timeout"
    assert [artifact.filepath for artifact in result.artifacts] == ["a"]


@needs_root
async def test_an_environment_under_a_closed_folder_works(bubblewrap_sandbox, repository, tmp_path):
    closed = tmp_path / "closed"
    shutil.copytree(repository / ".venv-sandbox", closed / "venv", symlinks=True, ignore=only_ours)
    closed.chmod(0o700)

    moved = await open_bubblewrap_sandbox(closed / "venv" / "bin" / "python", PROFILES)
    result = await run_program(moved, KEEP_A + "import sys; print(sys.prefix)")

    assert result.ok, result.report_text
    assert result.user_out_tail == f"{closed / 'venv'}\n"


def only_ours(folder: str, names: list[str]) -> list[str]:
    """What to leave out of a copy of the environment: the libraries, which are large."""
    if not folder.endswith("site-packages"):
        return []
    return [name for name in names if not name.startswith(("everturn", "executor"))]


async def test_without_bubblewrap_there_is_a_reason_and_a_remedy(bubblewrap_sandbox, repository, monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")

    with pytest.raises(SandboxUnavailable, match=r"Bubblewrap is not installed\. Try: apt-get install -y bubblewrap"):
        await open_bubblewrap_sandbox(repository / ".venv-sandbox" / "bin" / "python", PROFILES)


async def test_without_the_environment_there_is_a_reason_and_a_remedy(tmp_path, bubblewrap_sandbox):
    with pytest.raises(SandboxUnavailable, match=r"no sandbox environment at .*python\. Try: make setup"):
        await open_bubblewrap_sandbox(tmp_path / "bin" / "python", PROFILES)


async def test_a_supervisor_that_does_not_start_is_a_reason(bubblewrap_sandbox, repository):
    python = repository / ".venv-sandbox" / "bin" / "python"

    with pytest.raises(SandboxUnavailable, match="A trial run in bubblewrap failed"):
        await open_bubblewrap_sandbox(python, PROFILES, supervisor=("/bin/false",))


@pytest.mark.parametrize(
    ("left_out", "message"),
    [("--seccomp", "no seccomp filter is loaded"), ("--remount-ro", "its root is writable")],
)
async def test_a_sandbox_with_a_wall_missing_runs_nothing(
    bubblewrap_sandbox, repository, monkeypatch, left_out, message
):
    """A bubblewrap that forgets one of its arguments: the executor notices and refuses."""
    script = f"""#!/bin/sh
for argument; do
    shift
    if [ "$skip" ]; then skip=
    elif [ "$argument" = {left_out} ]; then skip=yes
    else set -- "$@" "$argument"; fi
done
exec {shutil.which("bwrap")} "$@"
"""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        fake = Path(folder) / "bwrap"
        fake.write_text(script)
        fake.parent.chmod(0o755)
        fake.chmod(0o755)
        monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")

        with pytest.raises(SandboxUnavailable, match=f"the sandbox is not isolated: {message}"):
            await open_bubblewrap_sandbox(repository / ".venv-sandbox" / "bin" / "python", PROFILES)
