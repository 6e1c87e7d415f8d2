"""What a worker and the task of a remote run agree on: the order that the task gets, the size of its result, and its
exit codes. Standard library only."""

from dataclasses import dataclass
from enum import IntEnum
from typing import ClassVar, Final

from everturn.execution.messages import MIB, PIPE_FRAME_BYTES, RunLimits

MAX_LINE_BYTES: Final = 80 * MIB
"""A recorded input: at most 64 MiB of inputs, a program of 1 MiB as JSON, and the headers of both."""

_TAR_BYTES_PER_FILE: Final = 4096


class TaskExit(IntEnum):
    """Exit codes of a task. With any other one, something outside ended it."""

    STORED = 0
    NO_ORDER = 3
    NOT_STORED = 4


TASK_EXITS: Final[dict[int, str]] = {
    TaskExit.NO_ORDER: "the task could not read its secret",
    TaskExit.NOT_STORED: "the task could not store its result, perhaps because its URL has expired",
}
"""What the codes of failures mean."""


@dataclass(frozen=True, slots=True)
class TaskOrder:
    """All that a task needs, as the JSON of a secret. The URLs are signed and expire.

    The recorded input is read from `line_url`. The result is sent to `result_url` as a form with `result_fields` and a
    last field `file`. `ends_within_s` counts from the start of the task's process.
    """

    kind: ClassVar[str] = "task_order"
    line_url: str
    result_url: str
    result_fields: dict[str, str]
    max_result_bytes: int
    ends_within_s: float


def limit_result_bytes(limits: RunLimits) -> int:
    """The largest stored result of a run: its tar, its last frame, and the headers of frames."""
    return limits.output_bytes + limits.output_files * _TAR_BYTES_PER_FILE + PIPE_FRAME_BYTES + 2 * MIB
