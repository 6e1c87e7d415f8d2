"""`react.pull`: brings files of earlier turns, or of the person's other conversations, to where programs and searches
see them, read-only. Nothing is copied: the result names the roots, and history gives the bytes."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from chat_proc.workspace.history import WorkspaceHistory
from chat_proc.workspace.limits import MAX_PATHS, MAX_PULL_BYTES, MAX_PULL_FILES, MIB
from chat_proc.workspace.loading import Owner, load_wish
from chat_proc.workspace.local import PULL_TOOL, Workspace, fold_workspace
from chat_proc.workspace.result_text import render_result
from chat_proc.workspace.wishes import Wish, read_wish
from everturn.errors import Invalid
from everturn.model.artifacts import Artifact
from everturn.model.commits import Effect
from everturn.ports.tool import ToolCall, ToolOutcome, ToolSpec

SHOWN_FILES = 80
"""Names of a pulled folder that the result lists."""


class PullParams(BaseModel):
    """Refs of files, or of folders in `files/` of a turn, with a slash at the end."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    paths: list[str] = Field(min_length=1, max_length=MAX_PATHS)


@dataclass(slots=True)
class _Pulling:
    """What one call has pulled so far, and how much the turn has."""

    files_left: int
    bytes_left: int
    pulled: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    already_local: list[str] = field(default_factory=list[str])
    missing: list[str] = field(default_factory=list[str])
    invalid: list[dict[str, str]] = field(default_factory=list[dict[str, str]])


class PullTool:
    """Changes nothing but what is local: its result block is the record."""

    def __init__(self, history: WorkspaceHistory) -> None:
        self._history = history
        self.spec = ToolSpec(
            tool_id=PULL_TOOL,
            summary="Bring files of earlier turns or other conversations here, read-only, for programs and searches.",
            guide=files("chat_proc.tools.workspace").joinpath("pull.md").read_text(encoding="utf-8"),
            params=PullParams,
            effect=Effect.PURE,
            strategy="exploration",
        )

    async def run(self, call: ToolCall) -> ToolOutcome:
        params = PullParams.model_validate(call.params)
        workspace = fold_workspace(call.context.blocks, call.context.turn_id)
        pulling = _Pulling(MAX_PULL_FILES - workspace.pulled_files, MAX_PULL_BYTES - workspace.pulled_bytes)
        for path in dict.fromkeys(params.paths):
            await self._pull(path, call, workspace, pulling)
        result = {
            "requested": params.paths,
            "pulled": pulling.pulled,
            "already_local": pulling.already_local,
            "missing": pulling.missing,
            "invalid": pulling.invalid,
        }
        done = pulling.pulled or pulling.already_local
        return ToolOutcome("ok" if done else "error", render_result(result), data=result)

    async def _pull(self, path: str, call: ToolCall, workspace: Workspace, pulling: _Pulling) -> None:
        context = call.context
        try:
            wish = read_wish(path, context.conversation_id)
        except Invalid as invalid:
            pulling.invalid.append({"path": path, "reason": invalid.detail})
            return
        if _is_local(wish, workspace):
            pulling.already_local.append(path)
            return
        owner = Owner(context.principal, context.conversation_id)
        found = await load_wish(self._history, owner, wish, max_files=MAX_PULL_FILES + 1)
        if not found:
            pulling.missing.append(path)
            return
        size = sum(artifact.size for artifact in found)
        if len(found) > pulling.files_left or size > pulling.bytes_left:
            pulling.invalid.append({"path": path, "reason": _too_much(found)})
            return
        pulling.files_left -= len(found)
        pulling.bytes_left -= size
        pulling.pulled.append(_describe(wish, found, size))


def _is_local(wish: Wish, workspace: Workspace) -> bool:
    """Whether the turn has it already: its own files, what came with its messages, and what it pulled before."""
    if wish.conversation_id is None and wish.turn_id == workspace.turn_id:
        return True
    local = {file.ref for file in workspace.files.values()} | {root.ref for root in workspace.pulled}
    wanted = wish.exact or wish.folder or ""
    return wish.spell(wanted) in local if wish.exact else wish.ref in local


def _too_much(found: Sequence[Artifact]) -> str:
    count = f"more than {MAX_PULL_FILES}" if len(found) > MAX_PULL_FILES else str(len(found))
    return (
        f"it has {count} files; one turn pulls {MAX_PULL_FILES} files and {MAX_PULL_BYTES // MIB} MB in all: "
        "pull single files or a smaller folder"
    )


def _describe(wish: Wish, found: Sequence[Artifact], size: int) -> dict[str, Any]:
    first = found[0]
    if wish.exact == first.ref:
        return {"ref": wish.spell(first.ref), "path": wish.place(first.path), "size": size}
    folder = wish.folder or ""
    names = [artifact.ref.removeprefix(folder) for artifact in found]
    described: dict[str, Any] = {
        "ref": wish.spell_folder(),
        "path": wish.folder_path,
        "file_count": len(found),
        "size": size,
        "files": names[:SHOWN_FILES],
    }
    if len(names) > SHOWN_FILES:
        described["files_not_listed"] = len(names) - SHOWN_FILES
    return described
