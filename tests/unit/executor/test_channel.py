"""The executor's line: blocking frames over two descriptors."""

import os

import pytest

from everturn.wire.execution import BadMessage, Hello, InputsEnd, Stop, build_message
from everturn.wire.framing import FrameDecoder, FrameError, encode_frame, encode_raw
from executor.channel import Channel, LineCut


class Line:
    """A channel and the supervisor's ends of its pipes."""

    def __init__(self) -> None:
        read_fd, self.into = os.pipe()
        self.out, write_fd = os.pipe()
        self.channel = Channel(read_fd, write_fd)


@pytest.fixture
def line():
    line = Line()
    yield line
    line.channel.close()
    os.close(line.out)


def test_frames_and_messages_arrive_in_order(line):
    os.write(line.into, encode_raw(b"tar") + encode_frame(build_message(Stop("timeout"))))
    os.close(line.into)

    assert line.channel.receive_frame() == b"tar"
    assert line.channel.receive(Stop, InputsEnd) == Stop("timeout")
    with pytest.raises(LineCut):
        line.channel.receive_frame()


def test_raw_bytes_where_a_message_belongs_are_refused(line):
    os.write(line.into, encode_raw(b"tar"))

    with pytest.raises(BadMessage):
        line.channel.receive(Stop)
    os.close(line.into)


def test_nonsense_is_a_frame_error(line):
    os.write(line.into, b"\x00\x00\x00\x01x")

    with pytest.raises(FrameError):
        line.channel.receive(Stop)
    os.close(line.into)


def test_messages_and_raw_pieces_go_out(line):
    line.channel.send(Hello("n"))
    line.channel.write(b"x" * 10)
    os.close(line.into)

    frames = FrameDecoder(allow_raw=True).feed(os.read(line.out, 1000))
    assert frames == [build_message(Hello("n")), b"x" * 10]


def test_a_selector_can_wait_for_it(line):
    assert os.fstat(line.channel.fileno())
    os.close(line.into)
