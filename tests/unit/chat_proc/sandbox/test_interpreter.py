"""Where an interpreter's own files are."""

import asyncio
import os
import sys
import sysconfig
from pathlib import Path

import pytest

from chat_proc.sandbox.local_supervisor import find_parts, load_interpreter
from chat_proc.sandbox.port import SandboxUnavailable


def make_python(place: Path) -> Path:
    for part in ("bin", "lib/python3.11/site-packages/other_project", "lib/node_modules", "share"):
        (place / part).mkdir(parents=True)
    (place / "lib" / "libpython3.11.so.1.0").touch()
    (place / "bin" / "other_program").touch()
    python = place / "bin" / "python3.11"
    python.touch()
    return python


def make_environment(place: Path, python: Path) -> Path:
    (place / "bin").mkdir(parents=True)
    (place / "bin" / "python").symlink_to(python)
    return place / "bin" / "python"


def test_a_program_sees_only_the_interpreter_of_its_environment(tmp_path):
    base, venv = tmp_path / "base", tmp_path / "venv"
    python = make_environment(venv, make_python(base))

    found = find_parts(python, str(venv), str(base), "python3.11")

    assert found.roots[0] == str(venv)
    assert {Path(root).relative_to(base).as_posix() for root in found.roots[1:]} == {
        "bin/python3.11",
        "lib/libpython3.11.so.1.0",
        "lib/python3.11",
    }
    assert found.hidden == (f"{base}/lib/python3.11/site-packages",)


def test_every_link_on_the_way_to_the_interpreter_counts(tmp_path):
    make_python(tmp_path / "python-3.11.9")
    (tmp_path / "python-3.11").symlink_to("python-3.11.9")
    python = make_environment(tmp_path / "venv", tmp_path / "python-3.11" / "bin" / "python3.11")

    found = find_parts(python, str(tmp_path / "venv"), str(tmp_path / "python-3.11"), "python3.11")

    for name in ("python-3.11", "python-3.11.9"):
        assert {str(tmp_path / name / "lib/python3.11"), str(tmp_path / name / "bin/python3.11")} <= set(found.roots)


async def test_the_running_interpreter_is_understood():
    found = await load_interpreter(Path(sys.executable))

    assert found.python == sys.executable
    assert sys.prefix in found.roots
    assert sysconfig.get_path("stdlib") in found.roots
    assert f"{sys.base_prefix}/lib" not in found.roots


async def test_a_missing_interpreter_or_executor_is_reported(tmp_path):
    with pytest.raises(SandboxUnavailable, match="no sandbox environment"):
        await load_interpreter(tmp_path / "python")

    broken = tmp_path / "python"
    broken.write_text("#!/bin/sh\necho broken >&2; exit 3\n")
    broken.chmod(0o755)
    with pytest.raises(SandboxUnavailable, match="does not run: broken"):
        await load_interpreter(broken)

    bare = tmp_path / "bare"
    bare.write_text('#!/bin/sh\necho \'["/x", "/y", "python3.11", false]\'\n')
    bare.chmod(0o755)
    with pytest.raises(SandboxUnavailable, match="The executor is not installed"):
        await load_interpreter(bare)


async def test_an_interpreter_that_hangs_is_killed_and_reported(tmp_path):
    python = make_hanging_python(tmp_path)

    with pytest.raises(SandboxUnavailable, match="did not answer within 2 s"):
        await load_interpreter(python, timeout_s=2)

    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


async def test_an_interpreter_that_hangs_is_killed_when_its_caller_is_cancelled(tmp_path):
    os.mkfifo(tmp_path / "pid")
    loading = asyncio.create_task(load_interpreter(make_hanging_python(tmp_path)))
    pid = int(await asyncio.to_thread((tmp_path / "pid").read_text))

    loading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await loading

    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def make_hanging_python(folder: Path) -> Path:
    """A wrapper script whose child hangs and keeps its pipes open."""
    python = folder / "python"
    python.write_text(f"#!/bin/sh\necho $$ > {folder}/pid\nsleep 60\nexit\n")
    python.chmod(0o755)
    return python
