"""The program's process, forked before the program is known: a run then needs no fork of everything preloaded.

The fork has no line to the supervisor. It waits for its orders at a pipe of its own, and ends with the runner.
"""

import os
from dataclasses import dataclass

from everturn.execution.framing import RAW_CHUNK_BYTES, FrameDecoder, encode_frame
from everturn.execution.messages import PIPE_FRAME_BYTES, Start
from everturn.execution.records import build_message, parse_message
from executor.channel import Channel
from executor.program import ProgramStreams, get_ready, leave, run_program


@dataclass(frozen=True, slots=True)
class WaitingProgram:
    """The runner's ends of the pipes: `orders` is written once, the others carry the program's output and its
    failure."""

    pid: int
    orders: int
    stdout: int
    stderr: int
    failure: int

    def begin(self, start: Start) -> None:
        """Start the program. If it is already gone, the runner notices when it waits for it."""
        data = memoryview(encode_frame(build_message(start), PIPE_FRAME_BYTES))
        try:
            while data:
                data = data[os.write(self.orders, data) :]
        except BrokenPipeError:
            return
        finally:
            os.close(self.orders)


def fork_program(channel: Channel | None) -> WaitingProgram:
    """Fork the process. The fork itself never returns from here."""
    orders_read, orders_write = os.pipe()
    (out_read, out_write), (err_read, err_write), (fail_read, fail_write) = os.pipe(), os.pipe(), os.pipe()
    pid = os.fork()
    if pid == 0:
        if channel is not None:
            channel.close()
        for descriptor in (orders_write, out_read, err_read, fail_read):
            os.close(descriptor)
        streams = ProgramStreams(out_write, err_write, fail_write)
        get_ready(streams)
        leave(_wait_and_run(orders_read, streams))
    for descriptor in (orders_read, out_write, err_write, fail_write):
        os.close(descriptor)
    return WaitingProgram(pid, orders_write, out_read, err_read, fail_read)


def _wait_and_run(orders: int, streams: ProgramStreams) -> int:
    decoder = FrameDecoder(PIPE_FRAME_BYTES)
    while data := os.read(orders, RAW_CHUNK_BYTES):
        for frame in decoder.feed(data):
            os.close(orders)
            return run_program(parse_message({} if isinstance(frame, bytes) else frame, Start), streams)
    return 0
