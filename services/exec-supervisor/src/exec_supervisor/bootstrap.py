"""Puts the supervisor on its standard streams: stdin is its worker's line in and its lifeline, stdout the line out."""

import asyncio
import signal
import sys
from typing import Final

from everturn.wire.execution import PIPE_FRAME_BYTES
from everturn.wire.framing import FrameDecoder, FrameStream
from exec_supervisor.supervisor.run import run_supervisor
from exec_supervisor.supervisor.worker_line import WorkerLine

_INPUT: Final = 0


def main() -> int:
    """The exit code of `python -m exec_supervisor`: 1 when it was ended before the result was sent."""
    try:
        return asyncio.run(_run())
    except asyncio.CancelledError:
        return 1


async def _run() -> int:
    loop = asyncio.get_running_loop()
    if running := asyncio.current_task():
        loop.add_signal_handler(signal.SIGTERM, running.cancel)
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    transport, protocol = await loop.connect_write_pipe(asyncio.streams.FlowControlMixin, sys.stdout)
    # Without a buffer `drain` means written: what is still held here when the process ends would be lost.
    transport.set_write_buffer_limits(high=0)
    writer = asyncio.StreamWriter(transport, protocol, reader, loop)
    stream = FrameStream(reader, writer, FrameDecoder(PIPE_FRAME_BYTES, allow_raw=True))
    return await run_supervisor(WorkerLine(stream), _INPUT)
