"""The executor's line: blocking frames over two descriptors."""

import os
import socket
import threading
import time

import pytest

from everturn.execution.framing import FrameDecoder, FrameError, encode_frame, encode_raw
from everturn.execution.messages import Hello, InputsEnd, Stop
from everturn.execution.records import BadMessage, build_message
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


def test_invalid_bytes_are_a_frame_error(line):
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


def test_a_socket_that_is_not_there_yet_is_waited_for(tmp_path):
    channels: list[Channel] = []
    tried = threading.Event()

    def sleep(seconds: float) -> None:
        tried.set()
        time.sleep(seconds)

    connecting = threading.Thread(target=lambda: channels.append(Channel.connect(str(tmp_path / "s"), sleep=sleep)))
    connecting.start()
    assert tried.wait(10)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "s"))
        listener.listen()
        peer, _ = listener.accept()
    connecting.join()

    with peer:
        peer.sendall(encode_raw(b"tar"))
        channels[0].write(b"back")

        assert channels[0].receive_frame() == b"tar"
        assert peer.recv(100) == encode_raw(b"back")
    with pytest.raises(LineCut):
        channels[0].receive_frame()
    channels[0].close()


def test_the_wait_for_a_supervisor_is_bounded(tmp_path):
    with pytest.raises(LineCut, match="no supervisor listens"):
        Channel.connect(str(tmp_path / "s"), timeout_s=0.02)


def test_a_buffered_frame_is_available_without_reading(line):
    os.write(line.into, encode_raw(b"tar") + encode_frame(build_message(Stop("timeout"))))
    os.close(line.into)

    line.channel.receive_frame()

    assert line.channel.holds_frame
