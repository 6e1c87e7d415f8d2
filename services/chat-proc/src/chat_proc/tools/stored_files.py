"""The files of a call's turn: loads them, and stores those that tools produce, with their types and descriptions. A
repeated call returns the same artifact."""

import asyncio
import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from pathlib import PurePosixPath
from types import MappingProxyType
from typing import Literal
from uuid import UUID

from chat_proc.attachments.policy import is_text
from chat_proc.catalog.tool import ToolCall, ToolContext
from chat_proc.workspace.loading import Owner, WorkspaceHistory, load_workspace
from chat_proc.workspace.local import (
    MAX_DELTA_BYTES,
    MAX_WORKSPACE_FILES,
    MAX_WRITTEN_BYTES,
    MIB,
    Workspace,
    find_clash,
    fold_workspace,
    is_workspace_file,
)
from everturn.core.errors import Invalid
from everturn.core.ids import ArtifactId, CallId, make_id
from everturn.core.refs import FileRef, OutputRef, check_path, file_ref, log_ref, output_ref, parse_ref
from everturn.files.model import WHITEOUT_MIME, Artifact, ArtifactKind, Rn, object_key
from everturn.files.objects import Objects
from everturn.history.model import Origin, read_origin

BINARY = "application/octet-stream"
TEXT = "text/plain"
_SIGNATURES = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
    (b"%PDF-", "application/pdf"),
)
_OFFICE = "application/vnd.openxmlformats-officedocument"
_BY_SUFFIX = MappingProxyType(
    {
        ".css": "text/css",
        ".csv": "text/csv",
        ".gif": "image/gif",
        ".htm": "text/html",
        ".html": "text/html",
        ".jpeg": "image/jpeg",
        ".jpg": "image/jpeg",
        ".js": "text/javascript",
        ".json": "application/json",
        ".markdown": "text/markdown",
        ".md": "text/markdown",
        ".pdf": "application/pdf",
        ".png": "image/png",
        ".py": "text/x-python",
        ".svg": "image/svg+xml",
        ".tsv": "text/tab-separated-values",
        ".txt": TEXT,
        ".webp": "image/webp",
        ".xml": "application/xml",
        ".yaml": "application/yaml",
        ".yml": "application/yaml",
        ".docx": f"{_OFFICE}.wordprocessingml.document",
        ".pptx": f"{_OFFICE}.presentationml.presentation",
        ".xlsx": f"{_OFFICE}.spreadsheetml.sheet",
        ".zip": "application/zip",
    }
)
"""A fixed table: the machine's own mime files would differ between workers."""
_ZIP_SUFFIXES = (".docx", ".pptx", ".xlsx", ".zip")
_SNIFFED_BYTES = 4096

NOT_SCANNED = "not scanned"
_REF_SCHEMES = ("fi:", "ar:", "tc:", "so:", "su:", "ws:")


def sniff_mime(name: str, data: bytes) -> str:
    """The type of a produced file. Bytes decide what is binary; the name only distinguishes texts and zip
    containers."""
    for signature, mime in _SIGNATURES:
        if data.startswith(signature):
            return mime
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    suffix = PurePosixPath(name).suffix.lower()
    if data.startswith((b"PK\x03\x04", b"PK\x05\x06")):
        return _BY_SUFFIX[suffix] if suffix in _ZIP_SUFFIXES else "application/zip"
    if not _looks_like_text(data):
        return BINARY
    named = _BY_SUFFIX.get(suffix, TEXT)
    return named if is_text(named) else TEXT


def _looks_like_text(data: bytes) -> bool:
    head = data[:_SNIFFED_BYTES]
    if b"\x00" in head:
        return False
    try:
        head.decode()
    except UnicodeDecodeError as error:
        # A character that was split by the cut does not indicate binary data.
        return len(data) > _SNIFFED_BYTES and error.start >= len(head) - 3
    return True


@dataclass(frozen=True, slots=True)
class Destination:
    """The destination of a file of the current turn: `files/` is the workspace, `outputs/` is for other produced
    files."""

    kind: Literal[ArtifactKind.FILE, ArtifactKind.OUTPUT]
    inner_path: str

    @property
    def folder_path(self) -> str:
        """`files/<path>` or `outputs/<path>`."""
        return f"{'files' if self.kind is ArtifactKind.FILE else 'outputs'}/{self.inner_path}"


@dataclass(frozen=True, slots=True)
class ProducedFile:
    """A file to store. `stage` says what created it: the agent itself or a sandboxed program.

    `sha256` is in hex, if already known; empty if it has to be computed. Only a file that was imported has an `origin`,
    which is its description.
    """

    destination: Destination
    data: bytes
    visibility: Literal["internal", "external"]
    stage: Literal["agent", "exec"]
    description: str = ""
    sha256: str = ""
    origin: Origin | None = None


def read_destination(path: str, context: ToolContext, *, default: ArtifactKind) -> Destination:
    """Parse the destination of a tool call. Raises Invalid, with a sentence for the model, unless it is in this turn.

    Accepts `files/a.md`, `outputs/a.png`, both also under the turn's id, a `fi:` ref, or a bare path under `default`.
    """
    relative = _path_of_ref(path, context) if path.startswith(_REF_SCHEMES) else path
    check_path(relative)
    head, _, rest = relative.partition("/")
    if head == context.turn_id:
        head, _, rest = rest.partition("/")
    elif head.startswith("turn_"):
        raise Invalid(
            f"{path!a} belongs to an earlier turn, which can't be changed; write to {context.turn_id}/files/."
        )
    if head == "files" and rest:
        return Destination(ArtifactKind.FILE, rest)
    if head == "outputs" and rest:
        return Destination(ArtifactKind.OUTPUT, rest)
    if head in ("attachments", "files", "outputs") or relative.partition("/")[0] == context.turn_id:
        raise Invalid(f"{path!a} can't be written; only files/ and outputs/ can.")
    return Destination(ArtifactKind.FILE if default is ArtifactKind.FILE else ArtifactKind.OUTPUT, relative)


async def save_file(objects: Objects, call: ToolCall, produced: ProducedFile) -> Artifact:
    """Save the bytes in the object store and describe them. Raises Unavailable if the store can't be written."""
    artifact = _build_artifact(call.call_id, call.context, produced)
    await objects.save(artifact.object_key, produced.data)
    return artifact


async def store_file(
    objects: Objects,
    call: ToolCall,
    path: str,
    content: bytes,
    *,
    visibility: Literal["internal", "external"],
    description: str,
    others: Iterable[Artifact],
) -> Artifact:
    """Store a file of an author's code, below `outputs/` unless the path says otherwise. `others` are files of the turn
    that no block has yet. Raises Invalid if there is no room for it, and Unavailable."""
    context = call.context
    destination = read_destination(path, context, default=ArtifactKind.OUTPUT)
    workspace = fold_workspace(context.blocks, context.turn_id)
    own_path = f"{context.turn_id}/{destination.folder_path}"
    stored = sum(each.size for each in others if each.path != own_path)
    check_room(workspace, destination, stored + len(content), max_bytes=MAX_DELTA_BYTES)
    digest = await asyncio.to_thread(lambda: hashlib.sha256(content).hexdigest())
    produced = ProducedFile(destination, content, visibility, "agent", description=description, sha256=digest)
    return await save_file(objects, call, produced)


async def save_log(objects: Objects, call: ToolCall, text: str) -> Artifact:
    """Save a program's output, for reading more than its result shows. Raises Unavailable."""
    context, name = call.context, f"{call.call_id}.txt"
    data = text.encode("utf-8", "replace")
    sha256 = await asyncio.to_thread(lambda: hashlib.sha256(data).hexdigest())
    log = Artifact(
        id=derive_artifact_id(call.call_id, f"logs/{name}", context.now),
        turn_id=context.turn_id,
        ref=log_ref(context.turn_id, name),
        rn=str(_build_rn(context, ArtifactKind.RESULT, f"logs/{name}", "exec")),
        kind=ArtifactKind.RESULT,
        filename=name,
        path=f"{context.turn_id}/logs/{name}",
        mime="text/plain",
        size=len(data),
        sha256=sha256,
        object_key=object_key(context.conversation_id, sha256),
        visibility="internal",
        verdict=NOT_SCANNED,
        description="What the program printed",
    )
    await objects.save(log.object_key, data)
    return log


async def save_copy(objects: Objects, call: ToolCall, source: Artifact, inner_path: str) -> Artifact:
    """Describe a stored file as a file of this turn's `files/`. Bytes of another conversation are copied, because its
    erasure deletes them. Raises NotFound or Unavailable."""
    context = call.context
    destination = Destination(ArtifactKind.FILE, inner_path)
    key = source.object_key
    if not key.startswith(f"{context.conversation_id}/"):
        key = object_key(context.conversation_id, source.sha256)
        await objects.save(key, await objects.load(source.object_key, max_bytes=source.size))
    return source.model_copy(
        update={
            "id": derive_artifact_id(call.call_id, destination.folder_path, context.now),
            "turn_id": context.turn_id,
            "ref": file_ref(context.turn_id, inner_path),
            "rn": str(_build_rn(context, destination.kind, destination.inner_path, "agent")),
            "kind": ArtifactKind.FILE,
            "path": f"{context.turn_id}/{destination.folder_path}",
            "object_key": key,
            "visibility": "internal",
            "description": f"Copied from {source.path}",
        }
    )


def build_removal(call: ToolCall, artifact: Artifact) -> Artifact:
    """The row that marks a file of this turn as removed from its workspace."""
    path = f"{artifact.path} removed"
    return artifact.model_copy(update={"id": derive_artifact_id(call.call_id, path, call.context.now), "removed": True})


def build_deletion(call: ToolCall, artifact: Artifact, inner_path: str) -> Artifact:
    """The row with which this turn deletes a file of the project, whichever turn wrote it."""
    context, destination = call.context, Destination(ArtifactKind.FILE, inner_path)
    path = f"{context.turn_id}/{destination.folder_path}"
    return artifact.model_copy(
        update={
            "id": derive_artifact_id(call.call_id, f"{path} deleted", context.now),
            "turn_id": context.turn_id,
            "ref": file_ref(context.turn_id, inner_path),
            "rn": str(_build_rn(context, ArtifactKind.FILE, inner_path, "agent")),
            "path": path,
            "mime": WHITEOUT_MIME,
            "visibility": "internal",
            "description": "",
            "removed": True,
        }
    )


def _path_of_ref(text: str, context: ToolContext) -> str:
    match parse_ref(text):
        case FileRef(turn=turn, path=path):
            return f"{turn}/files/{path}"
        case OutputRef(turn=turn, path=path):
            return f"{turn}/outputs/{path}"
        case _:
            raise Invalid(f"{text!a} can't be written; only files/ and outputs/ of {context.turn_id} can.")


def _build_artifact(call_id: CallId, context: ToolContext, produced: ProducedFile) -> Artifact:
    destination, data = produced.destination, produced.data
    sha256 = produced.sha256 or hashlib.sha256(data).hexdigest()
    make_ref = file_ref if destination.kind is ArtifactKind.FILE else output_ref
    path = f"{context.turn_id}/{destination.folder_path}"
    return Artifact(
        id=derive_artifact_id(call_id, destination.folder_path, context.now),
        turn_id=context.turn_id,
        ref=make_ref(context.turn_id, destination.inner_path),
        rn=str(_build_rn(context, destination.kind, destination.inner_path, produced.stage)),
        kind=destination.kind,
        filename=destination.inner_path.rsplit("/", 1)[-1],
        path=path,
        mime=sniff_mime(destination.inner_path, data),
        size=len(data),
        sha256=sha256,
        object_key=object_key(context.conversation_id, sha256),
        visibility=produced.visibility,
        verdict=NOT_SCANNED,
        description=produced.origin.mark if produced.origin else _disarm(produced.description),
    )


def _disarm(description: str) -> str:
    """A description that names no origin: that is for imports alone."""
    return description if read_origin(description) is None else f"({description})"


def _build_rn(context: ToolContext, kind: ArtifactKind, path: str, stage: Literal["agent", "exec"]) -> Rn:
    who = context.principal
    return Rn(
        tenant=who.tenant,
        project=who.project,
        stage=stage,
        user_id=who.user_id,
        conversation_id=context.conversation_id,
        turn_id=context.turn_id,
        role=kind.value,
        path=path,
    )


def derive_artifact_id(call_id: CallId, path: str, now: str) -> ArtifactId:
    """The id of the file that a call writes to `path`, the same for a repeated call."""
    entropy = hashlib.sha256(f"{call_id}\n{path}".encode()).digest()[:10]
    return ArtifactId(make_id("art", _birth_ms(call_id, now), entropy))


def _birth_ms(call_id: CallId, now: str) -> int:
    try:
        return UUID(call_id.removeprefix("call_")).int >> 80
    except ValueError:
        return int(datetime.fromisoformat(now).timestamp() * 1000)


async def load_local(history: WorkspaceHistory, context: ToolContext) -> Workspace:
    """The local files of the tool call's turn. Raises Unavailable."""
    owner = Owner(context.principal, context.conversation_id)
    return await load_workspace(history, owner, context.blocks, context.turn_id, context.skills)


def check_room(
    workspace: Workspace, destination: Destination, size: int, *, max_bytes: int = MAX_WRITTEN_BYTES
) -> None:
    """Raise Invalid, with a sentence for the model, if a file of `size` bytes can't be stored there."""
    if size > max_bytes:
        raise Invalid(f"The content has {size} bytes; at most {max_bytes} are allowed. Write less.")
    if workspace.written_bytes + size > MAX_DELTA_BYTES:
        raise Invalid(f"The files written in this turn would exceed {MAX_DELTA_BYTES // MIB} MiB.")
    path = f"{workspace.turn_id}/{destination.folder_path}"
    if path in workspace.files:
        return
    clash = find_clash([path, *(file.path for file in workspace.own)])
    if clash:
        raise Invalid(f"{clash} would be both a file and a folder; choose another path.")
    present = sum(is_workspace_file(file) for file in workspace.own)
    if destination.kind is ArtifactKind.FILE and present >= MAX_WORKSPACE_FILES:
        raise Invalid(f"files/ of this turn already has {present} files, which is the limit.")
