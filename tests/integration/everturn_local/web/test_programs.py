"""Tools run to their end, and never beyond."""

import asyncio
import os
import select
from pathlib import Path

import pytest

from everturn_local.web.node import Node, try_find_in_wheel
from everturn_local.web.programs import SHOWN_CHARS, ProgramFailed, run_program


@pytest.fixture(scope="module")
def node() -> Node:
    found = try_find_in_wheel()
    assert found is not None
    return found


def write(folder: Path, script: str) -> Path:
    (folder / "tool.js").write_text(script)
    return folder / "tool.js"


LIMIT_S = 60.0


def wait_end(pid_fd: int) -> bool:
    """Whether the process ended in time."""
    return bool(select.select([pid_fd], [], [], LIMIT_S)[0])


async def test_what_it_prints_is_given_back(node: Node, tmp_path: Path) -> None:
    tool = write(tmp_path, "console.log(process.argv[2], process.env.MORE); console.error(process.cwd())")

    output = await run_program(node, [tool, "one"], folder=tmp_path, limit_s=60, env={"MORE": "two"})

    assert sorted(output.split("\n")) == sorted(["", "one two", str(tmp_path)])


async def test_a_failure_shows_the_end_of_what_was_printed(node: Node, tmp_path: Path) -> None:
    tool = write(tmp_path, "process.stdout.write('x'.repeat(1e6) + 'the end'); process.exitCode = 3")

    with pytest.raises(ProgramFailed, match="ended with 3") as failure:
        await run_program(node, [tool], folder=tmp_path, limit_s=60, env={})

    assert str(failure.value).endswith("the end")
    assert len(str(failure.value)) < SHOWN_CHARS + 200


async def test_what_is_given_up_ends_with_all_it_has_started(node: Node, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pid")
    script = (
        "const {spawn} = require('child_process');"
        "const child = spawn(process.execPath, ['-e', 'setInterval(() => {}, 1000)'], {stdio: 'ignore'});"
        "require('fs').writeFileSync('pid', String(child.pid)); setInterval(() => {}, 1000)"
    )
    running = asyncio.create_task(run_program(node, [write(tmp_path, script)], folder=tmp_path, limit_s=600, env={}))
    # Reading waits until the program writes.
    child = os.pidfd_open(int(await asyncio.wait_for(asyncio.to_thread((tmp_path / "pid").read_text), LIMIT_S)))

    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running

    assert await asyncio.to_thread(wait_end, child)
    os.close(child)


async def test_a_timeout_is_reported(node: Node, tmp_path: Path) -> None:
    tool = write(tmp_path, "setInterval(() => {}, 1000)")

    with pytest.raises(ProgramFailed, match=r"did not end within 0\.5 s"):
        await run_program(node, [tool], folder=tmp_path, limit_s=0.5, env={})
