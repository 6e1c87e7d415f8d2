"""`react.write`: writes one text file of the current turn and shows it where the model wants."""

import json
from importlib.resources import files
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from chat_proc.tools.stored_files import ProducedFile, read_destination, save_file
from everturn.errors import Invalid
from everturn.model.artifacts import ArtifactKind
from everturn.model.commits import Effect
from everturn.ports.objects import Objects
from everturn.ports.tool import ToolCall, ToolOutcome, ToolSpec

MAX_CONTENT_BYTES = 2 * 1024 * 1024
"""Far above what one reply of a model can hold."""


class WriteParams(BaseModel):
    """The order matters: what is streamed to the person while it is written comes last."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    path: str = Field(min_length=1, max_length=1024)
    channel: Literal["canvas", "timeline_text", "internal"] = "canvas"
    kind: Literal["display", "file"] = "display"
    content: str | dict[str, Any] | list[Any]


class WriteTool:
    """Stores the bytes and describes the file; writing the same again changes nothing."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self.spec = ToolSpec(
            tool_id="react.write",
            summary="Write one text file of this turn (Markdown, HTML, JSON, code, notes) and show it to the user.",
            guide=files("chat_proc.tools.workspace").joinpath("write.md").read_text(encoding="utf-8"),
            params=WriteParams,
            effect=Effect.IDEMPOTENT,
            strategy="exploitation",
        )

    async def run(self, call: ToolCall) -> ToolOutcome:
        params = WriteParams.model_validate(call.params)
        data = _encode(params.content)
        if len(data) > MAX_CONTENT_BYTES:
            return ToolOutcome(
                "error", f"The content has {len(data)} bytes; {MAX_CONTENT_BYTES} is the most. Write less."
            )
        try:
            destination = read_destination(params.path, call.context, default=ArtifactKind.FILE)
        except Invalid as invalid:
            return ToolOutcome("error", f"Nothing was written: {invalid.detail}")
        visibility = "external" if params.kind == "file" and params.channel != "internal" else "internal"
        produced = ProducedFile(destination, data, visibility, "agent")
        artifact = await save_file(self._objects, call, produced)
        where = {
            "canvas": "and shown in the canvas",
            "timeline_text": "and shown in the conversation",
            "internal": "for later use; the user does not see it",
        }
        offered = ", offered to the user as a download" if visibility == "external" else ""
        return ToolOutcome("ok", f"Written {where[params.channel]}{offered}.", artifacts=(artifact,))


def _encode(content: str | dict[str, Any] | list[Any]) -> bytes:
    text = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False, indent=2) + "\n"
    # A lone surrogate has no bytes; the model can write one as a JSON escape.
    return text.encode("utf-8", errors="replace")
