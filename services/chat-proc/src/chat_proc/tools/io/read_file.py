"""`io_tools.read_file`: the bytes of a stored file that was not given to the program, a part at a time."""

from typing import Final

from pydantic import BaseModel, ConfigDict, Field

from chat_proc.tools.context.resolve import FoundFile, Missing, ReadPorts, Resolver
from everturn.model.commits import Effect
from everturn.ports.objects import Objects
from everturn.ports.tool import ToolCall, ToolOutcome, ToolSpec

MAX_BYTES: Final = 512 * 1024
"""Of one call: as base64 it must fit into a frame of 1 MiB."""


class ReadFileParams(BaseModel):
    """`ref` is a `fi:` ref or a path; `offset` and `max_bytes` say which part."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    ref: str = Field(min_length=1, max_length=2048)
    offset: int = Field(default=0, ge=0)
    max_bytes: int = Field(default=MAX_BYTES, ge=1, le=MAX_BYTES)


class ReadFileTool:
    """Finds files as `react.read` does: of this person only, also of their other conversations."""

    def __init__(self, objects: Objects, ports: ReadPorts) -> None:
        self._objects = objects
        self._ports = ports
        self.spec = ToolSpec(
            tool_id="io_tools.read_file",
            summary="The bytes of a stored file, for files that do not lie in WORKDIR.",
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
                value = {
                    "ref": ref,
                    "mime": artifact.mime,
                    "size": artifact.size,
                    "data": data,
                    "next_offset": end if end < artifact.size else None,
                }
                return ToolOutcome("ok", f"{len(data)} bytes of {ref}", value=value)
            case Missing(reason=reason):
                return ToolOutcome("error", f"{params.ref}: {reason}")
            case _:
                return ToolOutcome("error", f"{params.ref} is not a file; read it with ctx_tools.fetch_ctx")

    async def _load(self, key: str, start: int, end: int) -> bytes:
        """Raises NotFound, Unavailable."""
        if start >= end:
            return b""
        return b"".join([chunk async for chunk in self._objects.load_range(key, start=start, end=end)])
