"""The supervisor's line to its worker."""

import asyncio

import pytest

from everturn.execution.framing import FrameDecoder, FrameStream, encode_frame, encode_raw
from everturn.execution.messages import GatewayCall, Hello, InputsEnd, Stop, ToolReply
from everturn.execution.records import BadMessage, build_message
from exec_supervisor.supervisor.lifeline import LifelineCut
from exec_supervisor.supervisor.worker_line import WorkerLine


class Writer:
    def __init__(self) -> None:
        self.frames: list[object] = []
        self._decoder = FrameDecoder(allow_raw=True)

    def write(self, data: bytes) -> None:
        self.frames += self._decoder.feed(data)

    async def drain(self) -> None:
        return


@pytest.fixture
async def worker() -> asyncio.StreamReader:
    """What the worker sends is fed here."""
    return asyncio.StreamReader()


@pytest.fixture
async def line(worker) -> WorkerLine:
    return WorkerLine(FrameStream(worker, Writer(), FrameDecoder(allow_raw=True)))


def say(worker: asyncio.StreamReader, message) -> None:
    worker.feed_data(message if isinstance(message, bytes) else encode_frame(build_message(message)))


async def test_a_worker_that_is_gone_before_the_launch_cuts_the_lifeline(worker, line):
    worker.feed_eof()

    with pytest.raises(LifelineCut):
        await line.receive_launch()


async def test_the_first_frame_must_be_a_launch(worker, line):
    say(worker, Hello("n"))

    with pytest.raises(BadMessage):
        await line.receive_launch()


async def test_inputs_arrive_in_order_and_end(worker, line):
    running = asyncio.create_task(line.run())
    for piece in (encode_raw(b"1"), encode_raw(b"2"), InputsEnd()):
        say(worker, piece)

    assert [piece async for piece in line.inputs()] == [b"1", b"2"]
    running.cancel()


async def test_replies_find_their_calls_and_late_ones_are_dropped(worker, line):
    running = asyncio.create_task(line.run())
    calls = [asyncio.create_task(line.call(GatewayCall(number, "a.b", {}))) for number in (1, 2)]
    await asyncio.sleep(0)

    for number in (2, 1, 7):
        say(worker, ToolReply(number, True, number))

    assert [(await call).value for call in calls] == [1, 2]
    running.cancel()


async def test_the_first_reason_to_stop_stays(worker, line):
    running = asyncio.create_task(line.run())
    say(worker, Stop("cancelled"))
    say(worker, Stop("timeout"))

    assert await line.wait_for_stop() == "cancelled"
    assert await line.wait_for_stop() == "cancelled"
    running.cancel()


async def test_the_end_of_the_line_is_the_end_of_the_lifeline(worker, line):
    worker.feed_eof()

    with pytest.raises(LifelineCut):
        await line.run()


async def test_another_message_is_refused(worker, line):
    say(worker, Hello("n"))

    with pytest.raises(BadMessage):
        await line.run()
