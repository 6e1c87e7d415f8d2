"""Reports of a program's end: the line that failed, the limit it exceeded, and the tails of its output."""

import errno
import linecache
import signal
import traceback
from types import TracebackType
from typing import Final

from everturn.execution.messages import PROGRAM_NAME, LimitName, ProgramError

MAX_TRACEBACK_CHARS: Final = 6000
MAX_MESSAGE_CHARS: Final = 2000
MAX_TYPE_CHARS: Final = 200

_LIMIT_OF_ERRNO: Final[dict[int, LimitName]] = {
    errno.ENOSPC: "disk",
    errno.EDQUOT: "disk",
    errno.EFBIG: "file_size",
    errno.EMFILE: "open_files",
    errno.EAGAIN: "processes",
    errno.ENOMEM: "memory",
}
_LOCKS: Final = "multiprocessing/synchronize.py"
_NO_LOCKS: Final = (
    " (locks of multiprocessing need shared memory, which programs don't have: use threads or subprocess)"
)
_LIMIT_OF_SIGNAL: Final[dict[int, LimitName]] = {signal.SIGXCPU: "cpu", signal.SIGXFSZ: "file_size"}

_KERNEL_COUNTS: Final[tuple[tuple[str, str, LimitName], ...]] = (
    ("memory.events", "oom_kill", "memory"),
    ("memory/memory.oom_control", "oom_kill", "memory"),
    ("pids.events", "max", "processes"),
    ("pids/pids.events", "max", "processes"),
)


def remember_program(text: str) -> None:
    """Make tracebacks show the program's lines."""
    linecache.cache[PROGRAM_NAME] = (len(text), None, text.splitlines(keepends=True), PROGRAM_NAME)


def build_program_error(error: BaseException) -> ProgramError:
    """The error as the model needs it to fix its program: only frames from the program's first one on."""
    shown = _skip_our_frames(error.__traceback__)
    text = "".join(traceback.format_exception(type(error), error, shown, limit=-20))
    return ProgramError(
        type=type(error).__name__[:MAX_TYPE_CHARS],
        # Not `str(error)`, which can fail for the program's own exceptions.
        message=str(traceback.TracebackException(type(error), error, None))[:MAX_MESSAGE_CHARS] + _explain(error),
        line=find_line(error),
        traceback=_cut_middle(text, MAX_TRACEBACK_CHARS),
        limit=limit_of_error(error),
    )


def find_line(error: BaseException) -> int | None:
    """The program's line that failed: the innermost one on the stack, or the position of a syntax error."""
    if isinstance(error, SyntaxError) and error.filename == PROGRAM_NAME:
        return error.lineno
    stack = traceback.walk_tb(error.__traceback__)
    lines = [number for frame, number in stack if _is_program(frame.f_code.co_filename)]
    return lines[-1] if lines else None


def _explain(error: BaseException) -> str:
    """Additional explanation where the system's message is not enough."""
    files = [frame.f_code.co_filename for frame, _ in traceback.walk_tb(error.__traceback__)]
    found = isinstance(error, FileNotFoundError) and any(file.endswith(_LOCKS) for file in files[-1:])
    return _NO_LOCKS if found else ""


def limit_of_error(error: BaseException) -> LimitName | None:
    """The limit that caused an exception."""
    if isinstance(error, MemoryError):
        return "memory"
    if isinstance(error, OSError) and error.errno is not None:
        return _LIMIT_OF_ERRNO.get(error.errno)
    if isinstance(error, RuntimeError) and "can't start new thread" in str(error):
        return "processes"
    return None


def limit_of_signal(number: int) -> LimitName | None:
    """The limit whose signal ended a program."""
    return _LIMIT_OF_SIGNAL.get(number)


def load_kernel_hits(control_group: str = "/sys/fs/cgroup") -> tuple[LimitName, ...]:
    """The limits that the kernel enforced, if the sandbox shows its own control group (a container does).

    So a run reports a process that was killed for its memory even if the program continued without it.
    """
    return tuple(limit for file, name, limit in _KERNEL_COUNTS if _load_count(f"{control_group}/{file}", name))


def _load_count(path: str, name: str) -> int:
    try:
        with open(path, encoding="ascii") as file:
            counts = dict(line.split() for line in file)
        return int(counts.get(name, "0"))
    except (OSError, ValueError):
        return 0


def _skip_our_frames(trace: TracebackType | None) -> TracebackType | None:
    while trace is not None and not _is_program(trace.tb_frame.f_code.co_filename):
        trace = trace.tb_next
    return trace


def _is_program(filename: str) -> bool:
    return filename == PROGRAM_NAME


def _cut_middle(text: str, max_chars: int) -> str:
    if len(text) <= max_chars:
        return text
    half = max_chars // 2
    return f"{text[:half]}\n... {len(text) - 2 * half} characters left out ...\n{text[-half:]}"


class Tail:
    """The last `max_bytes` of a stream and its total number of bytes."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._held = bytearray()
        self.total_bytes = 0

    def add(self, data: bytes) -> None:
        self.total_bytes += len(data)
        self._held += data
        if len(self._held) > 2 * self._max_bytes:
            del self._held[: -self._max_bytes]

    def data(self) -> bytes:
        """The tail."""
        return bytes(self._held[-self._max_bytes :])

    def text(self) -> str:
        """The tail as text; invalid UTF-8 is replaced."""
        return self.data().decode("utf-8", "replace")
