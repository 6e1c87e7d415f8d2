"""Where an interpreter's own files are."""

import sys
from pathlib import Path

import pytest

from chat_proc.sandbox.interpreter import find_roots, load_interpreter
from everturn.ports.sandbox import SandboxUnavailable


def make_python(place: Path) -> Path:
    for part in ("bin", "lib"):
        (place / part).mkdir(parents=True)
    python = place / "bin" / "python3.11"
    python.touch()
    return python


def test_the_roots_are_the_environment_and_the_parts_of_its_base(tmp_path):
    base = make_python(tmp_path / "base")
    (tmp_path / "base" / "share").mkdir()
    venv = tmp_path / "venv"
    (venv / "bin").mkdir(parents=True)
    (venv / "bin" / "python").symlink_to(base)

    roots = find_roots(venv / "bin" / "python", str(venv), str(tmp_path / "base"))

    assert roots == (str(venv), str(tmp_path / "base" / "bin"), str(tmp_path / "base" / "lib"))


def test_every_link_on_the_way_to_the_interpreter_counts(tmp_path):
    make_python(tmp_path / "python-3.11.9")
    (tmp_path / "python-3.11").symlink_to("python-3.11.9")
    venv = tmp_path / "venv"
    (venv / "bin").mkdir(parents=True)
    (venv / "bin" / "python").symlink_to(tmp_path / "python-3.11" / "bin" / "python3.11")

    roots = find_roots(venv / "bin" / "python", str(venv), str(tmp_path / "python-3.11"))

    assert {str(tmp_path / name / "lib") for name in ("python-3.11", "python-3.11.9")} <= set(roots)


async def test_the_running_interpreter_is_understood():
    found = await load_interpreter(Path(sys.executable))

    assert found.python == sys.executable
    assert sys.prefix in found.roots
    assert f"{sys.base_prefix}/lib" in found.roots


async def test_an_interpreter_that_is_not_there_or_lacks_the_executor_is_told(tmp_path):
    with pytest.raises(SandboxUnavailable, match="no sandbox environment"):
        await load_interpreter(tmp_path / "python")

    broken = tmp_path / "python"
    broken.write_text("#!/bin/sh\necho broken >&2; exit 3\n")
    broken.chmod(0o755)
    with pytest.raises(SandboxUnavailable, match="does not run: broken"):
        await load_interpreter(broken)

    bare = tmp_path / "bare"
    bare.write_text('#!/bin/sh\necho \'["/x", "/y", false]\'\n')
    bare.chmod(0o755)
    with pytest.raises(SandboxUnavailable, match="The executor is not installed"):
        await load_interpreter(bare)
