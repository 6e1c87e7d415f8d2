"""Runs the terminal client as a process against the small server."""

import asyncio
import os
import pty
import sys
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.integration.everturn_client.conftest import SmallServer


@dataclass
class Everturn:
    """Starts `everturn` with a separate state folder."""

    url: str
    state_home: Path
    processes: list[asyncio.subprocess.Process]

    async def start(
        self, *arguments: str, stdin: int | None = None, stderr: int = asyncio.subprocess.PIPE
    ) -> asyncio.subprocess.Process:
        env = {
            **os.environ,
            "EVERTURN_URL": self.url,
            "XDG_STATE_HOME": str(self.state_home),
            "EVERTURN_TOKEN": "",
            "TZ": "Asia/Tokyo",
        }
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "everturn_client.cli", *arguments),
            stdin=asyncio.subprocess.DEVNULL if stdin is None else stdin,
            stdout=asyncio.subprocess.PIPE,
            stderr=stderr,
            env=env,
        )
        self.processes.append(process)
        return process

    async def run(self, *arguments: str, stdin: int | None = None) -> tuple[int, str, str]:
        """Exit code, standard output, standard error."""
        return await finish(await self.start(*arguments, stdin=stdin))


async def finish(process: asyncio.subprocess.Process) -> tuple[int, str, str]:
    out, err = await asyncio.wait_for(process.communicate(), 20)
    return process.returncode or 0, out.decode(), err.decode()


@pytest.fixture
async def everturn(server: "SmallServer", tmp_path: Path) -> AsyncIterator[Everturn]:
    runner = Everturn(server.url, tmp_path / "state", [])
    yield runner
    for process in runner.processes:
        if process.returncode is None:
            process.kill()
            await process.communicate()


@pytest.fixture
def keyboard() -> Iterator[tuple[int, int]]:
    """A pseudo-terminal: what is written to the first end is typed at the second."""
    ours, theirs = pty.openpty()
    yield ours, theirs
    os.close(ours)
    os.close(theirs)
