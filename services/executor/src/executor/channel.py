"""The executor's line to its supervisor: frames over descriptors that the program does not inherit."""

import os
import socket
import time
from collections.abc import Callable
from typing import Final, TypeVar

from everturn.execution.framing import RAW_CHUNK_BYTES, Frame, FrameDecoder, encode_frame, encode_raw
from everturn.execution.messages import EXECUTOR_FRAME_BYTES, LINE_WAIT_S, PIPE_FRAME_BYTES
from everturn.execution.records import MessageClass, build_message, parse_message

MessageT = TypeVar("MessageT", bound=MessageClass)

_INPUT: Final = 0
_OUTPUT: Final = 1
_ERRORS: Final = 2
_TRY_EVERY_S: Final = 0.01


class LineCut(Exception):
    """The supervisor is gone, or never connected."""


class Channel:
    """Blocking frames over two descriptors; `fileno` is the one to read from, for a selector."""

    def __init__(self, read_fd: int, write_fd: int) -> None:
        self._read_fd = read_fd
        self._write_fd = write_fd
        self._decoder = FrameDecoder(PIPE_FRAME_BYTES, allow_raw=True)
        self._ready: list[Frame] = []

    @classmethod
    def replace_standard_streams(cls) -> "Channel":
        """Replace stdin and stdout for the program: it gets an empty input, and the error stream as its output."""
        read_fd, write_fd = os.dup(_INPUT), os.dup(_OUTPUT)
        os.dup2(_ERRORS, _OUTPUT)
        return cls(read_fd, write_fd)

    @classmethod
    def connect(
        cls, path: str, *, timeout_s: float = LINE_WAIT_S, sleep: Callable[[float], None] = time.sleep
    ) -> "Channel":
        """Connect to the socket `path`, which exists once the supervisor listens. Raises LineCut.

        `sleep` waits for that many seconds between two attempts.
        """
        deadline = time.monotonic() + timeout_s
        while (line := _try_connect(path)) is None:
            if time.monotonic() > deadline:
                raise LineCut(f"no supervisor listens at {path}")
            sleep(_TRY_EVERY_S)
        return cls(os.dup(line.fileno()), line.detach())

    def fileno(self) -> int:
        return self._read_fd

    @property
    def holds_frame(self) -> bool:
        """Whether a frame is already buffered, which a selector would not report."""
        return bool(self._ready)

    def close(self) -> None:
        """Close both descriptors, as the forked program does."""
        os.close(self._read_fd)
        os.close(self._write_fd)

    def send(self, message: MessageClass) -> None:
        self._write(encode_frame(build_message(message), EXECUTOR_FRAME_BYTES))

    def receive_frame(self) -> Frame:
        """Wait for the next frame. Raises LineCut at the end of the stream, FrameError for invalid data."""
        while not self._ready:
            self._read_more()
        return self._ready.pop(0)

    def receive(self, *allowed: type[MessageT]) -> MessageT:
        """Wait for the next message, one of `allowed`. Raises LineCut, FrameError, BadMessage."""
        frame = self.receive_frame()
        return parse_message({} if isinstance(frame, bytes) else frame, *allowed)

    def _read_more(self) -> None:
        self._decoder.check()
        data = os.read(self._read_fd, RAW_CHUNK_BYTES)
        if not data:
            raise LineCut
        self._ready.extend(self._decoder.feed(data))

    def _write(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[os.write(self._write_fd, view) :]

    def write(self, data: bytes) -> int:
        """Send bytes as raw frames: the file interface that `tarfile` writes a stream to."""
        for start in range(0, len(data), RAW_CHUNK_BYTES):
            self._write(encode_raw(data[start : start + RAW_CHUNK_BYTES]))
        return len(data)


def _try_connect(path: str) -> socket.socket | None:
    line = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        line.connect(path)
    except (FileNotFoundError, ConnectionRefusedError):
        line.close()
        return None
    return line


def empty_input() -> None:
    """Give the program an empty input."""
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), _INPUT)
