"""Selects and loads a program's input files within the sandbox's limits: those local to its turn, and files of other
turns that it names by path."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import structlog

from chat_proc.catalog.tool import ToolContext
from chat_proc.workspace.loading import WorkspaceHistory, pulled_file
from chat_proc.workspace.local import LocalFile, Workspace, turn_target
from chat_proc.workspace.naming import Matched, Names, find_names, find_similar, match_names
from everturn.core.errors import EverturnError, Invalid, Unavailable
from everturn.execution.messages import check_relative_path
from everturn.files.objects import AlteredObject, Objects
from everturn.skills.model import SkillFile
from everturn.timeline.inert import escape_line

_log = structlog.get_logger(__name__)

MAX_INPUT_BYTES = 48 * 1024 * 1024
"""Leaves the program a quarter of the sandbox's 64 MB work folder for its own files."""
MAX_INPUT_FILES = 200
MAX_SEARCHED_FILES = 1_000
"""Files of one other turn that are searched for the named ones."""
SHOWN_LEFT_OUT = 10


@dataclass(frozen=True, slots=True)
class Inputs:
    """The input files of a program, by path. `left_out` pairs path and reason; `unknown` are lines about wrong
    names."""

    files: Mapping[str, bytes]
    left_out: tuple[tuple[str, str], ...]
    unknown: tuple[str, ...] = ()

    def describe_left_out(self) -> str:
        """A line for each omitted file, at most ten; empty if the program gets all."""
        lines = [
            f"Not given to the program: {escape_line(path)} ({why})." for path, why in self.left_out[:SHOWN_LEFT_OUT]
        ]
        if len(self.left_out) > SHOWN_LEFT_OUT:
            lines.append(f"Not given to the program: {len(self.left_out) - SHOWN_LEFT_OUT} more files.")
        return "\n".join(lines)

    def describe_unknown(self) -> str:
        """A line for each missing path that the program names, at most ten."""
        return "\n".join(self.unknown)


class InputLoader:
    """Finds and loads the files of one run."""

    def __init__(self, history: WorkspaceHistory, objects: Objects) -> None:
        self._history = history
        self._objects = objects

    async def load(
        self, context: ToolContext, workspace: Workspace, texts: Sequence[str], *, needs_all: bool = False
    ) -> Inputs:
        """`texts` are the program and its contract. Named files come first, then the newest.

        A file that can't be loaded is left out. With `needs_all`, a store that is down raises Unavailable instead.
        """
        names = await asyncio.to_thread(find_names, texts)
        elsewhere = await self._load_elsewhere(context, names)
        local = list(workspace.files.values())
        matched = await asyncio.to_thread(match_names, names, [*elsewhere, *local])
        wanted = dict.fromkeys([*matched.files, *reversed(local)])
        unknown = await asyncio.to_thread(_describe_unknown, matched, context.turn_id, elsewhere)
        files, left_out = await self._load_files(list(wanted), needs_all=needs_all)
        return Inputs(files, left_out, unknown)

    async def _load_elsewhere(self, context: ToolContext, names: Names) -> list[LocalFile]:
        """The files of the other turns that the program mentions."""
        found: list[LocalFile] = []
        for conversation_id, turn_id in names.places:
            if turn_id == context.turn_id:
                continue
            target = turn_target(turn_id, conversation_id, context.conversation_id)
            artifacts = await self._history.load_folder(
                context.principal,
                target.conversation_id or context.conversation_id,
                target.folder or "",
                max_files=MAX_SEARCHED_FILES,
            )
            found += [pulled_file(target, artifact) for artifact in artifacts]
        return found

    async def _load_files(
        self, wanted: Sequence[LocalFile], *, needs_all: bool
    ) -> tuple[dict[str, bytes], tuple[tuple[str, str], ...]]:
        files: dict[str, bytes] = {}
        left_out: list[tuple[str, str]] = []
        bytes_left = MAX_INPUT_BYTES
        for file in wanted:
            if file.path in files:
                continue
            reason = _refusal(file, bytes_left, len(files))
            if not reason:
                try:
                    files[file.path] = await self._load_one(file)
                    bytes_left -= file.artifact.size
                except EverturnError as error:
                    if needs_all and isinstance(error, Unavailable) and not isinstance(error, AlteredObject):
                        raise
                    _log.warning("Could not load an input of a program", path=file.path, error=str(error))
                    reason = describe_failure(error)
            if reason:
                left_out.append((file.path, reason))
        return files, tuple(left_out)

    async def _load_one(self, file: LocalFile) -> bytes:
        artifact = file.artifact
        if isinstance(artifact, SkillFile):
            return artifact.data
        return await self._objects.load(artifact.object_key, max_bytes=artifact.size)


def describe_failure(error: Exception) -> str:
    """Why a stored file can't be read, for the model. The text of a store that fails names places of the operator."""
    if isinstance(error, AlteredObject):
        return "it failed its integrity check"
    if isinstance(error, Unavailable | TimeoutError):
        return "the file store does not answer"
    return str(error)


def _refusal(file: LocalFile, bytes_left: int, count: int) -> str:
    if count >= MAX_INPUT_FILES:
        return f"more than {MAX_INPUT_FILES} files"
    if file.artifact.size > bytes_left:
        return f"all files together would exceed {MAX_INPUT_BYTES} bytes"
    try:
        check_relative_path(file.path)
    except ValueError as error:
        return str(error)
    return ""


def _describe_unknown(matched: Matched, turn_id: str, elsewhere: Sequence[LocalFile]) -> tuple[str, ...]:
    """A line for each missing path of another turn, at most SHOWN_LEFT_OUT."""
    unknown = [path for path in matched.unknown if not path.startswith(f"{turn_id}/")]
    return tuple(_describe_missing(path, elsewhere) for path in unknown[:SHOWN_LEFT_OUT])


def _describe_missing(path: str, elsewhere: Sequence[LocalFile]) -> str:
    place = path[: path.index("/", path.index("turn_")) + 1]
    like = find_similar(path, [file.path for file in elsewhere if file.path.startswith(place)], count=1, cutoff=0.7)
    if like:
        return f"The program names {escape_line(path)}, which does not exist. Did you mean {escape_line(like[0])}?"
    return f"The program names {escape_line(path)}, which does not exist.{_hint(path)}"


def _hint(path: str) -> str:
    parts = path.split("/")
    conversation_id = parts[0] if parts[0].startswith("conv_") else None
    turn_id = parts[1] if conversation_id and len(parts) > 1 else parts[0]
    try:
        tree = turn_target(turn_id, conversation_id, None).tree
    except Invalid:
        return ""
    return f' To list the files of that turn: react.pull {{"paths": ["{tree}"]}}.'
