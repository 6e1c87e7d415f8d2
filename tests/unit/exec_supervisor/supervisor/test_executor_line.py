"""The supervisor's line to an executor: unexpected input ends it."""

import asyncio

import pytest

from everturn.execution.framing import FrameDecoder, FrameStream, encode_frame, encode_raw
from everturn.execution.messages import PIPE_FRAME_BYTES, Booted, OutputsEnd, Report, Stop
from everturn.execution.records import build_message
from exec_supervisor.supervisor.run import ExecutorFailed, ExecutorLine, parse

REPORT = Report(0, None, None, "", "", 0, 0)


class Writer:
    def __init__(self) -> None:
        self.data = b""

    def write(self, data: bytes) -> None:
        self.data += data

    async def drain(self) -> None:
        return


def line_of(*parts: object, writer: Writer | None = None) -> ExecutorLine:
    reader = asyncio.StreamReader()
    for part in parts:
        reader.feed_data(part if isinstance(part, bytes) else encode_frame(build_message(part)))
    reader.feed_eof()
    return ExecutorLine(FrameStream(reader, writer or Writer(), FrameDecoder(PIPE_FRAME_BYTES, allow_raw=True)))


async def test_a_booted_executor_names_its_runtime_and_then_reports():
    line = line_of(Booted("cpython 3.11"), REPORT)

    assert await line.boot() == "cpython 3.11"
    assert await line.receive_report() == REPORT


async def test_an_unconfined_executor_does_not_boot():
    with pytest.raises(ExecutorFailed, match="not isolated: it runs as root"):
        await line_of(Booted("cpython", ("it runs as root",))).boot()


@pytest.mark.parametrize("said", [b"", encode_raw(b"x"), b"\xff" * 9, encode_frame(build_message(OutputsEnd()))])
async def test_an_invalid_report_ends_the_executor(said):
    with pytest.raises(ExecutorFailed):
        await line_of(said).receive_report()


async def test_raw_frames_are_given_as_they_came():
    line = line_of(encode_raw(b"tar"), OutputsEnd())

    assert await line.receive_frame() == b"tar"
    assert parse(await line.receive_frame(), OutputsEnd) == OutputsEnd()


async def test_messages_and_raw_bytes_are_sent_as_frames():
    writer = Writer()
    line = line_of(writer=writer)

    await line.send(Stop("timeout"))
    await line.send_raw(b"ab")

    assert writer.data == encode_frame(build_message(Stop("timeout"))) + encode_raw(b"ab")
