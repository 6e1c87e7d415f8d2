"""Which files of the conversation a program gets, within the sandbox's limits, and their bytes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from chat_proc.timeline.files import fold_artifacts
from everturn.errors import EverturnError
from everturn.model.artifacts import Artifact
from everturn.model.blocks import Block
from everturn.ports.objects import Objects
from everturn.timeline.inert import escape_line
from everturn.wire.execution import check_relative_path

MAX_INPUT_BYTES = 48 * 1024 * 1024
"""Leaves the program a quarter of the 64 MB that the sandbox takes for its own files of the work folder."""
MAX_INPUT_FILES = 200
SHOWN_LEFT_OUT = 10


@dataclass(frozen=True, slots=True)
class Inputs:
    """The files a program gets, by path; `left_out` pairs path and reason."""

    files: Mapping[str, bytes]
    left_out: tuple[tuple[str, str], ...]

    def describe_left_out(self) -> str:
        """A line for each file that the program did not get, at most ten; empty when it got all."""
        lines = [
            f"Not given to the program: {escape_line(path)} ({why})." for path, why in self.left_out[:SHOWN_LEFT_OUT]
        ]
        if len(self.left_out) > SHOWN_LEFT_OUT:
            lines.append(f"Not given to the program: {len(self.left_out) - SHOWN_LEFT_OUT} more files.")
        return "\n".join(lines)


async def load_inputs(objects: Objects, blocks: Sequence[Block], program: str) -> Inputs:
    """Load the files the program names first, then the newest, until the limits are reached."""
    files: dict[str, bytes] = {}
    left_out: list[tuple[str, str]] = []
    bytes_left = MAX_INPUT_BYTES
    for artifact in _rank(list(fold_artifacts(blocks).values()), program):
        reason = _refusal(artifact, bytes_left, len(files))
        if reason:
            left_out.append((artifact.path, reason))
            continue
        try:
            files[artifact.path] = await objects.load(artifact.object_key, max_bytes=artifact.size)
        except EverturnError as error:
            left_out.append((artifact.path, str(error)))
            continue
        bytes_left -= artifact.size
    return Inputs(files, tuple(left_out))


def _rank(artifacts: Sequence[Artifact], program: str) -> list[Artifact]:
    newest_first = list(reversed(artifacts))
    return sorted(newest_first, key=lambda artifact: artifact.filename not in program)


def _refusal(artifact: Artifact, bytes_left: int, count: int) -> str:
    if count >= MAX_INPUT_FILES:
        return f"more than {MAX_INPUT_FILES} files"
    if artifact.size > bytes_left:
        return f"all files together would exceed {MAX_INPUT_BYTES} bytes"
    try:
        check_relative_path(artifact.path)
    except ValueError as error:
        return str(error)
    return ""
