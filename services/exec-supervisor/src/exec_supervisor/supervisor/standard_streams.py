"""Runs a supervisor on its standard streams: stdin is the input of its worker's line and its lifeline, stdout the
output."""

import asyncio
import signal
import sys
from collections.abc import Awaitable, Callable
from typing import Final

from everturn.execution.framing import FrameDecoder, FrameStream
from everturn.execution.messages import PIPE_FRAME_BYTES
from exec_supervisor.supervisor.worker_line import WorkerLine

LIFELINE: Final = 0
ENDED_EARLY: Final = 1

Serve = Callable[[WorkerLine], Awaitable[int]]


def run_on_standard_streams(serve: Serve) -> int:
    """Return the exit code of `serve`; 1 when this process was terminated before it was done."""
    try:
        return asyncio.run(_run(serve))
    except asyncio.CancelledError:
        return ENDED_EARLY


async def _run(serve: Serve) -> int:
    loop = asyncio.get_running_loop()
    if running := asyncio.current_task():
        loop.add_signal_handler(signal.SIGTERM, running.cancel)
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    transport, protocol = await loop.connect_write_pipe(asyncio.streams.FlowControlMixin, sys.stdout)
    # Without a buffer, `drain` means written: data still buffered when the process ends would be lost.
    transport.set_write_buffer_limits(high=0)
    writer = asyncio.StreamWriter(transport, protocol, reader, loop)
    return await serve(WorkerLine(FrameStream(reader, writer, FrameDecoder(PIPE_FRAME_BYTES, allow_raw=True))))
