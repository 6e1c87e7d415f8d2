"""Writes to closed pipes on both event loops."""

import asyncio
import socket
from asyncio.subprocess import PIPE
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import uvloop

from everturn.core.subprocesses import run_command
from everturn.core.transports import CheckedWriter, abort

LOOPS = pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
Run = Callable[[Coroutine[Any, Any, Any]], Any]


@LOOPS
def test_a_write_to_a_program_that_has_ended_is_an_os_error(run: Run) -> None:
    async def write() -> None:
        process = await asyncio.create_subprocess_exec("true", stdin=PIPE)
        await process.wait()
        assert process.stdin is not None
        writer = CheckedWriter(process.stdin)
        with pytest.raises(OSError):
            for _ in range(3):
                writer.write(b"x")
                await writer.drain()
                await asyncio.sleep(0.01)

    run(write())


@LOOPS
@pytest.mark.parametrize("data", [b"", b"x" * 1_000_000])
def test_a_program_that_does_not_read_its_input_has_a_result(run: Run, data: bytes) -> None:
    for _ in range(20):
        assert run(run_command(("true",), data, timeout_s=10)) == (0, b"", b"")


async def test_a_connection_that_has_closed_after_its_last_bytes_can_be_aborted() -> None:
    ours, theirs = socket.socketpair()
    reader, peer = await asyncio.open_connection(sock=theirs)
    _, writer = await asyncio.open_connection(sock=ours)
    writer.write(b"x" * 8_000_000)
    writer.close()
    assert len(await reader.read()) == 8_000_000
    await writer.wait_closed()

    abort(writer)
    abort(writer)
    peer.close()
