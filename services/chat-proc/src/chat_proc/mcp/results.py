"""Turns the result of an MCP tool into the outcome of a call: text for the model, a value for programs, and files for
pictures, sound and other binary content."""

import asyncio
import base64
import binascii
import json
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Final, cast
from urllib.parse import urlsplit

from mcp_types import (
    AudioContent,
    CallToolResult,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
    TextResourceContents,
)

from chat_proc.catalog.tool import ToolCall, ToolOutcome
from chat_proc.tools.stored_files import Destination, ProducedFile, check_room, save_file
from chat_proc.workspace.local import fold_workspace
from everturn.core.errors import Invalid, Unavailable
from everturn.core.logging import Redactor
from everturn.files.model import Artifact, ArtifactKind
from everturn.files.objects import Objects
from everturn.timeline.inert import escape_line

MAX_PARTS: Final = 100
"""Parts of one result; the others are left out, and the text says so."""
MAX_FILES: Final = 20
"""Files of one result."""
_SUFFIXES: Final = {
    "application/json": ".json",
    "application/pdf": ".pdf",
    "audio/mpeg": ".mp3",
    "audio/ogg": ".ogg",
    "audio/wav": ".wav",
    "image/gif": ".gif",
    "image/jpeg": ".jpg",
    "image/png": ".png",
    "image/svg+xml": ".svg",
    "image/webp": ".webp",
}
MAX_LABEL_CHARS: Final = 300
MAX_ON_LOOP_CHARS: Final = 64 * 1024
"""A longer file is decoded in a thread."""

_Content = TextContent | ImageContent | AudioContent | ResourceLink | EmbeddedResource


@dataclass(frozen=True, slots=True)
class _Binary:
    """Bytes that become a file. `name` is the server's, if it gave one."""

    data: str
    mime: str
    name: str
    what: str


async def build_outcome(objects: Objects, call: ToolCall, result: CallToolResult, redactor: Redactor) -> ToolOutcome:
    """The outcome of a call. Files that can't be stored are named in the text, and the rest is kept. The secrets of
    `redactor` are removed from files: in the message, they were encoded."""
    lines: list[str] = []
    artifacts: list[Artifact] = []
    for part in result.content[:MAX_PARTS]:
        read = _read_part(part)
        if isinstance(read, _Binary):
            saved = await _try_save(objects, call, read, len(artifacts), redactor)
            artifacts += [saved] if isinstance(saved, Artifact) else []
            lines.append(_describe_saved(read, saved))
        elif read:
            lines.append(read)
    if len(result.content) > MAX_PARTS:
        lines.append(f"({len(result.content) - MAX_PARTS} more parts were left out.)")
    value = result.structured_content
    if value is not None and not lines:
        lines.append(await asyncio.to_thread(json.dumps, value, ensure_ascii=False))
    text = "\n\n".join(lines) or ("The tool failed without a message." if result.is_error else "")
    return ToolOutcome(
        "error" if result.is_error else "ok",
        text or "The tool returned nothing.",
        artifacts=tuple(artifacts),
        value=text if value is None else value,
        untrusted=True,
    )


def _read_part(part: _Content) -> str | _Binary:
    match part:
        case TextContent(text=text):
            return text
        case ImageContent(data=data, mime_type=mime):
            return _Binary(data, mime, "", "image")
        case AudioContent(data=data, mime_type=mime):
            return _Binary(data, mime, "", "sound")
        case ResourceLink(uri=uri, name=name, description=description):
            about = f": {_label(description)}" if description else ""
            return f"Resource {_label(name)} ({_label(str(uri))}){about}"
        case EmbeddedResource(resource=resource):
            uri = str(resource.uri)
            if isinstance(resource, TextResourceContents):
                return f"Resource {_label(uri)}:\n{resource.text}"
            return _Binary(resource.blob, resource.mime_type or "", _name_of(uri), f"resource {_label(uri)}")


def _label(text: str) -> str:
    return escape_line(text[:MAX_LABEL_CHARS])


def _name_of(uri: str) -> str:
    try:
        name = PurePosixPath(urlsplit(uri).path).name
    except ValueError:
        return ""
    return "".join(char if char.isascii() and (char.isalnum() or char in "._-") else "_" for char in name)[:80]


async def _try_save(objects: Objects, call: ToolCall, part: _Binary, number: int, redactor: Redactor) -> Artifact | str:
    """The stored file, or why there is none."""
    if number >= MAX_FILES:
        return f"a result can have at most {MAX_FILES} files"
    try:
        if len(part.data) > MAX_ON_LOOP_CHARS:
            data = await asyncio.to_thread(_decode, part.data, redactor)
        else:
            data = _decode(part.data, redactor)
    except (binascii.Error, ValueError):
        return "it is not valid base64"
    suffix = "" if "." in part.name else _SUFFIXES.get(part.mime.partition(";")[0].strip(), ".bin")
    name = f"{call.call_id}-{number + 1}-{part.name.lstrip('.') or 'result'}{suffix}"
    destination = Destination(ArtifactKind.OUTPUT, f"mcp/{name}")
    try:
        check_room(fold_workspace(call.context.blocks, call.context.turn_id), destination, len(data))
        return await save_file(objects, call, ProducedFile(destination, data, "external", "agent"))
    except Invalid as error:
        return error.detail
    except Unavailable:
        return "the store of files does not respond"


def _decode(data: str, redactor: Redactor) -> bytes:
    return cast(bytes, redactor.redact_value(base64.b64decode(data, validate=True)))


def _describe_saved(part: _Binary, saved: Artifact | str) -> str:
    if isinstance(saved, str):
        return f"(The {part.what} was not stored: {saved}.)"
    return f"The {part.what} is stored as {saved.ref} ({saved.mime}, {saved.size} bytes). The user sees it as a file."
