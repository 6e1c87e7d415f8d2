"""`react.write`: writes one text file of the current turn and shows it in the requested channel."""

import json
import re
from importlib.resources import files
from typing import Any, Literal, cast

from pydantic import BaseModel, ConfigDict, Field

from chat_proc.catalog.tool import Record, ToolCall, ToolOutcome, ToolSpec
from chat_proc.channels.citations import find_used_sids, index_sources
from chat_proc.tools.stored_files import ProducedFile, check_room, read_destination, save_file
from chat_proc.workspace.local import (
    fold_workspace,
)
from everturn.core.errors import Invalid
from everturn.core.refs import named_artifact_ref
from everturn.events.turn_view import format_of_path
from everturn.files.model import Artifact, ArtifactKind
from everturn.files.objects import Objects
from everturn.timeline.blocks import AnchorBody, BlockType
from everturn.turns.model import Effect

Channel = Literal["canvas", "timeline_text", "internal"]
Kind = Literal["display", "file"]

MAX_NOTE_CHARS = 2_000
"""Limit of an inline note: notes are never pruned."""
TAGS = ("P", "D", "S", "A", "K")
"""Preference, decision, stable fact, achievement, key artifact."""
_LEADING_TAGS = re.compile(r"^[ \t]*(?:[-*][ \t]+)?((?:\[[PDSAK]\][ \t]*)+)", re.MULTILINE)
_WHERE = {
    "canvas": "and shown in the canvas",
    "timeline_text": "and shown in the conversation",
    "internal": "for later use; the user does not see it",
}


def choose_visibility(channel: Channel, kind: Kind) -> Literal["internal", "external"]:
    """Files are offered to the person, except those in the internal channel."""
    return "external" if kind == "file" and channel != "internal" else "internal"


class WriteParams(BaseModel):
    """The order matters: what says where the content is shown comes before it, so that it can stream."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    path: str = Field(min_length=1, max_length=1024)
    channel: Channel = "canvas"
    content: str | dict[str, Any] | list[Any]
    kind: Kind = "display"
    scratchpad: bool = False


def build_write_spec() -> ToolSpec:
    """What the model reads about `react.write`."""
    return ToolSpec(
        tool_id="react.write",
        summary="Write one text file of this turn (Markdown, HTML, JSON, code, notes) and show it to the user.",
        guide=files("chat_proc.tools.workspace").joinpath("write.md").read_text(encoding="utf-8"),
        params=WriteParams,
        effect=Effect.IDEMPOTENT,
        strategy="exploitation",
    )


class WriteTool:
    """Stores the bytes and describes the file; writing the same content again changes nothing."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self.spec = build_write_spec()

    async def run(self, call: ToolCall) -> ToolOutcome:
        params, context = WriteParams.model_validate(call.params), call.context
        text = _build_text(params.content)
        # A lone surrogate can't be encoded; the model can write one as a JSON escape.
        data = text.encode("utf-8", errors="replace")
        try:
            destination = read_destination(params.path, context, default=ArtifactKind.FILE)
            check_room(fold_workspace(context.blocks, context.turn_id), destination, len(data))
        except Invalid as invalid:
            return ToolOutcome("error", f"Nothing was written: {invalid.detail}")
        visibility = choose_visibility(params.channel, params.kind)
        artifact = await save_file(self._objects, call, ProducedFile(destination, data, visibility, "agent"))
        sids = _find_sids(call, artifact, params.content, text)
        anchor, said = _build_anchor(call, params, artifact, text)
        offered = ", offered to the user as a download" if visibility == "external" else ""
        return ToolOutcome(
            "ok",
            f"Written {_WHERE[params.channel]}{offered}.{said}",
            artifacts=(artifact,),
            records=anchor,
            data={"sources_used": sids} if sids else None,
        )


def _build_text(content: str | dict[str, Any] | list[Any]) -> str:
    return content if isinstance(content, str) else json.dumps(content, ensure_ascii=False, indent=2) + "\n"


def _find_sids(call: ToolCall, artifact: Artifact, content: object, text: str) -> list[int]:
    """The sources that a Markdown, plain or HTML text cites by tokens, or a JSON object in its `citations`."""
    sources = index_sources(call.context.pool.rows)
    if isinstance(content, str):
        return list(find_used_sids(sources, text, format_of_path(artifact.path)))
    cited = cast("dict[str, object]", content).get("citations") if isinstance(content, dict) else None
    rows = cast("list[object]", cited) if isinstance(cited, list) else []
    lists = [cast("dict[str, object]", row).get("sids") for row in rows if isinstance(row, dict)]
    sids = [sid for each in lists if isinstance(each, list) for sid in cast("list[object]", each)]
    return list(dict.fromkeys(sid for sid in sids if isinstance(sid, int) and sid in sources))


def _build_anchor(call: ToolCall, params: WriteParams, artifact: Artifact, text: str) -> tuple[tuple[Record, ...], str]:
    """The inline note of a scratchpad, and a sentence about it."""
    if not params.scratchpad:
        return (), ""
    if params.channel != "internal":
        return (), " No note was created: scratchpad works only with the internal channel."
    note = text.strip()
    if not note or len(note) > MAX_NOTE_CHARS:
        return (), f" No note was created: a note has 1 to {MAX_NOTE_CHARS} characters."
    ref = named_artifact_ref(call.context.turn_id, f"react.note.{call.call_id}")
    body = AnchorBody(text=note, tags=read_tags(note), path=artifact.path)
    return (Record(BlockType.ANCHOR, ref, body),), " It stays visible as a note."


def read_tags(note: str) -> tuple[str, ...]:
    """The tags `[P] [D] [S] [A] [K]` that begin lines of a note, each once."""
    found = "".join(match[1] for match in _LEADING_TAGS.finditer(note))
    return tuple(tag for tag in TAGS if f"[{tag}]" in found)
