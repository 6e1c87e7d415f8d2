"""Watches the program: reads its output, notices its end, and ends everything it left running.

The runner is the first process of the sandbox, or has a user of its own beside its supervisor. It inherits and reaps
every orphan, so that zombies don't exhaust the process limit; and signals from inside can't stop or kill it.
"""

import contextlib
import os
import select
import selectors
import signal
import time
from collections.abc import Generator
from dataclasses import dataclass
from typing import Final

from everturn.execution.messages import RunLimits
from executor.channel import Channel
from executor.confine import may_end_all
from executor.report import Tail

_READ_BYTES: Final = 1 << 16
MAX_FAILURE_BYTES: Final = 1 << 18  # a failure's texts as JSON, where one character needs up to 12 bytes
MAX_TAIL_CHARS: Final = 64_000
"""Limit for each stream in a report, which must fit EXECUTOR_FRAME_BYTES."""
_BYTES_PER_CHAR: Final = 4
_GONE_WAIT_S: Final = 1.0
_KILL_AGAIN_S: Final = 0.01


@dataclass(frozen=True, slots=True)
class ProgramEnd:
    """A finished program: wait status, output, and the frame that reports its failure."""

    status: int
    stdout: Tail
    stderr: Tail
    failure: Tail


class Watch:
    """Reads the program's output until it ends or the supervisor sends a stop, then ends all remaining processes."""

    def __init__(self, limits: RunLimits) -> None:
        tail_chars = min(limits.tail_chars, MAX_TAIL_CHARS)
        self.stdout = Tail(tail_chars * _BYTES_PER_CHAR)
        self.stderr = Tail(tail_chars * _BYTES_PER_CHAR)
        self.failure = Tail(MAX_FAILURE_BYTES)
        self._status = int(signal.SIGKILL)

    def run(self, program_pid: int, channel: Channel, pipes: dict[int, Tail]) -> None:
        """Return when every process of the program is gone. Raises LineCut when the supervisor is gone."""
        children = Children(program_pid)
        with _wake_at_ends() as wakeup, selectors.DefaultSelector() as selector:
            for descriptor in (wakeup, channel, *pipes):
                selector.register(descriptor, selectors.EVENT_READ)
            children.take_note()
            stopped = channel.holds_frame
            while children.status is None and not stopped:
                for key, _ in selector.select():
                    if key.fileobj is channel:
                        channel.receive_frame()
                        stopped = True
                    elif key.fd == wakeup:
                        os.read(wakeup, _READ_BYTES)
                        children.take_note()
                    elif not _read(key.fd, pipes):
                        selector.unregister(key.fd)
            children.end_all(wakeup)
        if children.status is not None:
            self._status = children.status
        for descriptor in pipes:
            _read_rest(descriptor, pipes)

    def ended(self) -> ProgramEnd:
        """The observed end of the program."""
        return ProgramEnd(self._status, self.stdout, self.stderr, self.failure)


class Children:
    """All processes of the sandbox except the runner, this one; `status` is the program's wait status once it has
    ended."""

    def __init__(self, program_pid: int) -> None:
        self._program_pid = program_pid
        self.status: int | None = None

    def take_note(self) -> bool:
        """Reap all that have ended; returns whether any is left."""
        with contextlib.suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG)) != (0, 0):
                if ended[0] == self._program_pid:
                    self.status = ended[1]
            return True
        return False

    def end_all(self, wakeup: int) -> None:
        """Kill until none is left, for at most a second: from then on no process changes the output folder."""
        deadline = time.monotonic() + _GONE_WAIT_S
        _kill_all()
        while self.take_note() and time.monotonic() < deadline:
            if not select.select([wakeup], [], [], _KILL_AGAIN_S)[0]:
                # A process forked during the previous kill is hit by the next one.
                _kill_all()
            else:
                os.read(wakeup, _READ_BYTES)


def _kill_all() -> None:
    """Kill everything in the sandbox except this process. Elsewhere it would hit others."""
    if not may_end_all():
        raise PermissionError("only the runner of a sandbox may end all others")
    with contextlib.suppress(ProcessLookupError):
        os.kill(-1, signal.SIGKILL)


@contextlib.contextmanager
def _wake_at_ends() -> Generator[int]:
    """A descriptor that becomes readable when a child has ended."""
    wakeup, signalled = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    before = signal.signal(signal.SIGCHLD, _note_nothing)
    signal.set_wakeup_fd(signalled, warn_on_full_buffer=False)
    try:
        yield wakeup
    finally:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, before)
        os.close(wakeup)
        os.close(signalled)


def _note_nothing(number: int, frame: object) -> None:
    """Without a handler, the end of a child would write nothing to the descriptor."""


def _read(descriptor: int, pipes: dict[int, Tail]) -> bool:
    data = os.read(descriptor, _READ_BYTES)
    pipes[descriptor].add(data)
    return bool(data)


def _read_rest(descriptor: int, pipes: dict[int, Tail]) -> None:
    """Read what is in the pipe, but not to its end: its other end may have been sent to another process through a
    socket."""
    os.set_blocking(descriptor, False)
    with contextlib.suppress(BlockingIOError):
        while _read(descriptor, pipes):
            pass
