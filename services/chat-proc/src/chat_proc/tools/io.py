"""The tools of `io_tools`, for programs: list files, read one, and show progress."""

from typing import Final

from pydantic import BaseModel, ConfigDict, Field

from chat_proc.catalog.tool import ToolCall, ToolEvents, ToolOutcome, ToolSpec
from chat_proc.tools.context.resolve import FoundFile, FoundSkill, Missing, ReadPorts, Resolver
from chat_proc.tools.stored_files import load_local
from chat_proc.workspace.loading import WorkspaceHistory
from chat_proc.workspace.local import select_files
from everturn.core.errors import Invalid
from everturn.files.model import Artifact
from everturn.files.objects import Objects
from everturn.skills.model import SkillFile
from everturn.turns.model import Effect

MAX_LISTED: Final = 1_000

MAX_BYTES: Final = 512 * 1024
"""Limit of one call: as base64 it must fit into a frame of 1 MiB."""


class ListFilesParams(BaseModel):
    """`folder` is the beginning of the paths."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    folder: str = Field(default="", max_length=2048)


class ListFilesTool:
    """Reads rows, never contents."""

    def __init__(self, history: WorkspaceHistory) -> None:
        self._history = history
        self.spec = ToolSpec(
            tool_id="io_tools.list_files",
            summary="The files that are local in this turn.",
            guide="",
            params=ListFilesParams,
            effect=Effect.PURE,
            in_loop=False,
            in_programs=True,
            returns="a list of {path, ref, size, mime}, at most 1,000",
        )

    async def run(self, call: ToolCall) -> ToolOutcome:
        folder = ListFilesParams.model_validate(call.params).folder
        workspace = await load_local(self._history, call.context)
        try:
            selection = select_files(workspace, folder, call.context.conversation_id)
        except Invalid as invalid:
            return ToolOutcome("error", invalid.detail)
        rows = [
            {"path": file.path, "ref": file.ref, "size": file.artifact.size, "mime": file.artifact.mime}
            for file in selection.files[:MAX_LISTED]
        ]
        return ToolOutcome("ok", f"{len(rows)} files", value=rows)


class ReadFileParams(BaseModel):
    """`ref` is a `fi:` ref or a path; `offset` and `max_bytes` say which part."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    ref: str = Field(min_length=1, max_length=2048)
    offset: int = Field(default=0, ge=0)
    max_bytes: int = Field(default=MAX_BYTES, ge=1, le=MAX_BYTES)


class ReadFileTool:
    """Finds files as `react.read` does: only this person's, but also in their other conversations."""

    def __init__(self, objects: Objects, ports: ReadPorts) -> None:
        self._objects = objects
        self._ports = ports
        self.spec = ToolSpec(
            tool_id="io_tools.read_file",
            summary="The bytes of a stored file that is not in WORKDIR.",
            guide="",
            params=ReadFileParams,
            effect=Effect.PURE,
            in_loop=False,
            in_programs=True,
            returns="{ref, mime, size, data: bytes, next_offset: int | None}",
        )

    async def run(self, call: ToolCall) -> ToolOutcome:
        params = ReadFileParams.model_validate(call.params)
        match await Resolver(call.context, self._ports).find(params.ref):
            case FoundFile(ref=ref, artifact=artifact):
                end = min(artifact.size, params.offset + params.max_bytes)
                data = await self._load(artifact.object_key, min(params.offset, end), end)
                return _give(ref, artifact, data, end)
            case FoundSkill(file=file):
                end = min(file.size, params.offset + params.max_bytes)
                return _give(file.ref, file, file.data[params.offset : end], end)
            case Missing(reason=reason):
                return ToolOutcome("error", f"{params.ref}: {reason}")
            case _:
                return ToolOutcome("error", f"{params.ref} is not a file; read it with ctx_tools.fetch_ctx")

    async def _load(self, key: str, start: int, end: int) -> bytes:
        """Raises NotFound, Unavailable."""
        if start >= end:
            return b""
        return b"".join([chunk async for chunk in self._objects.load_range(key, start=start, end=end)])


def _give(ref: str, file: Artifact | SkillFile, data: bytes, end: int) -> ToolOutcome:
    more = end if end < file.size else None
    value = {"ref": ref, "mime": file.mime, "size": file.size, "data": data, "next_offset": more}
    return ToolOutcome("ok", f"{len(data)} bytes of {ref}", value=value)


class ShowProgressParams(BaseModel):
    """One line."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    text: str = Field(min_length=1, max_length=500)


class ShowProgressTool:
    """Sends an event to clients, which is not stored."""

    spec = ToolSpec(
        tool_id="io_tools.show_progress",
        summary="Shows the user a line about what the program is doing now.",
        guide="",
        params=ShowProgressParams,
        effect=Effect.PURE,
        in_loop=False,
        in_programs=True,
        returns="an empty string",
    )

    async def run(self, call: ToolCall) -> ToolOutcome:
        text = ShowProgressParams.model_validate(call.params).text
        ToolEvents(call, self.spec.tool_id).progress(text)
        return ToolOutcome("ok", "")
