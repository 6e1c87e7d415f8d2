"""`react.patch`: changes an existing text file of the current turn, by a unified diff or a complete new text."""

import asyncio
from dataclasses import asdict, dataclass
from importlib.resources import files
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from chat_proc.attachments.policy import is_text
from chat_proc.catalog.tool import ToolCall, ToolContext, ToolOutcome, ToolSpec
from chat_proc.tools.stored_files import Destination, ProducedFile, check_room, read_destination, save_file
from chat_proc.tools.workspace.write import Channel, Kind, choose_visibility
from chat_proc.workspace.loading import Owner, WorkspaceHistory, load_own
from chat_proc.workspace.local import MAX_WRITTEN_BYTES, LocalFile, Workspace
from chat_proc.workspace.naming import find_similar, render_result
from chat_proc.workspace.unified_diff import (
    Applied,
    Refused,
    apply_diff,
    find_syntax_problem,
    has_preview_numbers,
    is_diff,
)
from everturn.core.errors import Invalid
from everturn.files.model import ArtifactKind
from everturn.files.objects import Objects
from everturn.timeline.rendering import count_lines
from everturn.turns.model import Effect

_AROUND = 10
"""Lines before the failing one at which the suggested read begins."""
_BOM = "\ufeff"


class PatchParams(BaseModel):
    """`patch` is a unified diff when it begins with `---`, `+++` or `@@`, else the whole new text."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    path: str = Field(min_length=1, max_length=1024)
    patch: str
    channel: Channel = "canvas"
    kind: Kind = "display"


@dataclass(frozen=True, slots=True)
class _Patched:
    """A new text, and details of the change."""

    text: str
    details: dict[str, Any]


class PatchTool:
    """Loads the file, changes it in memory and stores it again; a patch that does not apply changes nothing."""

    def __init__(self, history: WorkspaceHistory, objects: Objects) -> None:
        self._history = history
        self._objects = objects
        self.spec = ToolSpec(
            tool_id="react.patch",
            summary="Change an existing text file of this turn by a unified diff, or replace its whole text.",
            guide=files("chat_proc.tools.workspace").joinpath("patch.md").read_text(encoding="utf-8"),
            params=PatchParams,
            effect=Effect.IDEMPOTENT,
            strategy="exploitation",
        )

    async def run(self, call: ToolCall) -> ToolOutcome:
        params, context = PatchParams.model_validate(call.params), call.context
        owner = Owner(context.principal, context.conversation_id)
        workspace = await load_own(self._history, owner, context.blocks, context.turn_id)
        try:
            destination = _read_target(params.path, context)
            file = await asyncio.to_thread(_find_file, workspace, destination)
            current = await self._load_text(file)
            patched = await asyncio.to_thread(_patch, current, params.patch, file)
            if isinstance(patched, Refused):
                return _refuse(file, patched)
            data = patched.text.encode("utf-8", errors="replace")
            check_room(workspace, destination, len(data))
        except Invalid as invalid:
            return ToolOutcome("error", render_result({"path": params.path, "ok": False, "message": invalid.detail}))
        was_offered = file.stored.visibility == "external" and params.channel != "internal"
        visibility = "external" if was_offered else choose_visibility(params.channel, params.kind)
        artifact = await save_file(self._objects, call, ProducedFile(destination, data, visibility, "agent"))
        problem = await find_syntax_problem(artifact.filename, data)
        notices = [f"post_patch_check_failed: {problem}. The file is stored anyway; fix it."] if problem else []
        result = {"path": file.path, "ok": True, **patched.details, "size_bytes": len(data), "notices": notices}
        return ToolOutcome("ok", render_result(result), artifacts=(artifact,))

    async def _load_text(self, file: LocalFile) -> str:
        """Load the file. Raises Invalid unless it is a text of a size that can be patched."""
        if file.artifact.size > MAX_WRITTEN_BYTES:
            raise Invalid(f"It has {file.artifact.size} bytes; at most {MAX_WRITTEN_BYTES} can be patched.")
        data = await self._objects.load(file.stored.object_key, max_bytes=MAX_WRITTEN_BYTES)
        try:
            text = data.decode("utf-8")
        except UnicodeDecodeError as error:
            raise Invalid("It is not UTF-8 text; create it again with a program.") from error
        if not is_text(file.artifact.mime) or "\x00" in text:
            raise Invalid(
                f"Its content is not text (its type is {file.artifact.mime}); create it again with a program."
            )
        return text


def _read_target(path: str, context: ToolContext) -> Destination:
    try:
        return read_destination(path, context, default=ArtifactKind.FILE)
    except Invalid as invalid:
        raise Invalid(f"{invalid.detail} To change a file of an earlier turn, check it out with react.checkout.") from (
            invalid
        )


def _find_file(workspace: Workspace, destination: Destination) -> LocalFile:
    path = f"{workspace.turn_id}/{destination.folder_path}"
    file = workspace.files.get(path)
    if file is not None and file.origin == "own":
        return file
    names = [own.path for own in workspace.own]
    like = find_similar(path, names, count=3, cutoff=0.6)
    hint = f" Did you mean {' or '.join(like)}?" if like else " Write it with react.write, or check it out."
    raise Invalid(f"There is no {path!a} in this turn.{hint}")


def _patch(current: str, patch: str, file: LocalFile) -> _Patched | Refused:
    """Apply the patch. Raises Invalid if it is malformed. A byte order mark is kept and not part of the first line."""
    if not patch.strip():
        raise Invalid("The patch is empty.")
    bom = _BOM if current.startswith(_BOM) else ""
    current = current.removeprefix(_BOM)
    as_diff = is_diff(patch)
    if has_preview_numbers(patch, current, is_diff=as_diff):
        raise Invalid("The patch contains line numbers of a preview. They are not part of the file; remove them.")
    if not as_diff:
        return _Patched(bom + patch.removeprefix(_BOM), {"mode": "replacement", "line_count": count_lines(patch)})
    match apply_diff(current, patch):
        case Applied(text=text, hunks=hunks):
            moved = [
                {"hunk": number, "stated_line": hunk.stated, "applied_at_line": hunk.line}
                for number, hunk in enumerate(hunks, start=1)
                if hunk.moved
            ]
            details = {
                "mode": "diff",
                "hunks": len(hunks),
                "lines_added": sum(hunk.added for hunk in hunks),
                "lines_removed": sum(hunk.removed for hunk in hunks),
                "moved": moved,
                "line_count": count_lines(text),
            }
            return _Patched(bom + text, details)
        case Refused() as refused:
            return refused


def _refuse(file: LocalFile, refused: Refused) -> ToolOutcome:
    details = {key: value for key, value in asdict(refused).items() if value is not None}
    code, message = details.pop("code"), details.pop("message")
    result: dict[str, Any] = {"path": file.path, "ok": False, "error": code, "message": message, **details}
    if refused.code == "hunk_mismatch" and refused.actual is None:
        result["actual"] = "(end of the file)"
    if refused.line is not None:
        start = max(1, refused.line - _AROUND)
        result["suggested_read"] = {"path": file.ref, "line_start": start, "line_count": 2 * _AROUND + 1}
    return ToolOutcome("error", render_result(result))
