"""The executor's line to its supervisor: frames over the descriptors it was started with; the program gets others."""

import os
from typing import Final, TypeVar

from everturn.wire.execution import PIPE_FRAME_BYTES, MessageClass, build_message, parse_message
from everturn.wire.framing import RAW_CHUNK_BYTES, Frame, FrameDecoder, encode_frame, encode_raw

MessageT = TypeVar("MessageT", bound=MessageClass)

_INPUT: Final = 0
_OUTPUT: Final = 1
_ERRORS: Final = 2


class LineCut(Exception):
    """The supervisor is gone."""


class Channel:
    """Blocking frames over two descriptors; `fileno` is the reading one, for a selector."""

    def __init__(self, read_fd: int, write_fd: int) -> None:
        self._read_fd = read_fd
        self._write_fd = write_fd
        self._decoder = FrameDecoder(PIPE_FRAME_BYTES, allow_raw=True)
        self._ready: list[Frame] = []

    @classmethod
    def take_standard_streams(cls) -> "Channel":
        """Move stdin and stdout out of the way of the program: it finds an empty input and the error stream there."""
        read_fd, write_fd = os.dup(_INPUT), os.dup(_OUTPUT)
        with open(os.devnull, "rb") as nothing:
            os.dup2(nothing.fileno(), _INPUT)
        os.dup2(_ERRORS, _OUTPUT)
        return cls(read_fd, write_fd)

    def fileno(self) -> int:
        return self._read_fd

    def close(self) -> None:
        """Close both descriptors, as the forked program does."""
        os.close(self._read_fd)
        os.close(self._write_fd)

    def send(self, message: MessageClass) -> None:
        self._write(encode_frame(build_message(message), PIPE_FRAME_BYTES))

    def receive_frame(self) -> Frame:
        """Wait for the next frame. Raises LineCut at the end of the stream, FrameError on nonsense."""
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
