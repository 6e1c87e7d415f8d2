"""`react.checkout` and `react.pull`: bring files of earlier turns into this turn's workspace, to edit or to read."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from chat_proc.catalog.tool import Record, ToolCall, ToolOutcome, ToolSpec
from chat_proc.tools.stored_files import build_removal, save_copy
from chat_proc.workspace.loading import Owner, WorkspaceHistory, load_target
from chat_proc.workspace.local import (
    MAX_PATHS,
    MAX_PULL_BYTES,
    MAX_PULL_FILES,
    MAX_WORKSPACE_FILES,
    MIB,
    PULL_TOOL,
    FileTarget,
    Workspace,
    find_clash,
    fold_workspace,
    is_workspace_file,
    parse_target,
    whole_tree,
)
from chat_proc.workspace.naming import render_result
from everturn.core.errors import Invalid, NotFound
from everturn.core.refs import named_artifact_ref
from everturn.files.model import Artifact, find_inner_path
from everturn.files.objects import Objects
from everturn.skills.model import SCHEME, Skills, SkillSelection
from everturn.timeline.blocks import BlockType, CheckoutBody
from everturn.turns.model import Effect

SHOWN_FILES = 80
"""File names that the result lists, for the workspace and for removed files."""


class CheckoutParams(BaseModel):
    """`version` is an older form of: replace everything with the workspace of that turn."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    mode: Literal["replace", "overlay"] = "replace"
    paths: list[str] = Field(default_factory=lambda: [], max_length=MAX_PATHS)
    version: str | None = Field(default=None, max_length=120)

    @model_validator(mode="after")
    def check_sources(self) -> "CheckoutParams":
        if bool(self.paths) is bool(self.version):
            raise ValueError("pass paths, refs such as fi:<turn>.files/, or a version, the id of a turn")
        if self.version and self.mode == "overlay":
            raise ValueError("version replaces the whole workspace; pass paths to add files")
        return self


@dataclass(slots=True)
class _Sources:
    """The found sources: `files` maps each path under `files/` to the last source that has it."""

    files: dict[str, tuple[FileTarget, Artifact]] = field(default_factory=dict[str, tuple[FileTarget, Artifact]])
    checked_out: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    missing: list[str] = field(default_factory=list[str])
    invalid: list[dict[str, str]] = field(default_factory=list[dict[str, str]])


class CheckoutTool:
    """The copies are rows of this turn with the same content; the checkout block records their origin."""

    def __init__(self, history: WorkspaceHistory, objects: Objects) -> None:
        self._history = history
        self._objects = objects
        self.spec = ToolSpec(
            tool_id="react.checkout",
            summary="Make files of earlier turns the editable workspace of this turn (replace), or add them (overlay).",
            guide=files("chat_proc.tools.workspace").joinpath("checkout.md").read_text(encoding="utf-8"),
            params=CheckoutParams,
            effect=Effect.IDEMPOTENT,
            strategy="exploration",
        )

    async def run(self, call: ToolCall) -> ToolOutcome:
        params = CheckoutParams.model_validate(call.params)
        workspace = fold_workspace(call.context.blocks, call.context.turn_id)
        sources = await self._find_sources(params, call)
        problem = _find_problem(params, sources, workspace)
        if problem:
            result = {"ok": False, "error": problem, "missing": sources.missing, "invalid": sources.invalid}
            return ToolOutcome("error", render_result(result))
        body = await self._build_body(params, sources, workspace, call)
        ref = named_artifact_ref(call.context.turn_id, f"workspace.checkout.{call.call_id}")
        result = _describe_checkout(params, sources, body, workspace)
        return ToolOutcome("ok", render_result(result), records=(Record(BlockType.CHECKOUT, ref, body),))

    async def _find_sources(self, params: CheckoutParams, call: ToolCall) -> _Sources:
        context, sources = call.context, _Sources()
        owner = Owner(context.principal, context.conversation_id)
        for path in params.paths or [params.version or ""]:
            try:
                ref = whole_tree(path) if params.version else path
                target = _check_target(parse_target(ref, context.conversation_id))
            except Invalid as invalid:
                sources.invalid.append({"path": path, "reason": invalid.detail})
                continue
            found = await load_target(self._history, owner, target, max_files=MAX_WORKSPACE_FILES + 1)
            if not found:
                sources.missing.append(path)
                continue
            sources.checked_out.append({"source": path, "files": len(found)})
            sources.files |= {find_inner_path(artifact): (target, artifact) for artifact in found}
        return sources

    async def _build_body(
        self, params: CheckoutParams, sources: _Sources, workspace: Workspace, call: ToolCall
    ) -> CheckoutBody:
        copies = [
            (target.spell(artifact.ref), await save_copy(self._objects, call, artifact, inner_path))
            for inner_path, (target, artifact) in sources.files.items()
        ]
        removed: list[Artifact] = []
        if params.mode == "replace":
            kept = {copy.path for _, copy in copies}
            gone = [file for file in workspace.own if is_workspace_file(file) and file.path not in kept]
            removed = [build_removal(call, file.stored) for file in gone]
        return CheckoutBody(
            mode=params.mode,
            sources=tuple(source for source, _ in copies),
            artifacts=tuple(copy for _, copy in copies),
            removed=tuple(removed),
        )


def _check_target(target: FileTarget) -> FileTarget:
    if target.folder is None:
        raise Invalid("only files/ of a turn can be checked out; outputs and attachments can be read, pulled or copied")
    return target


def _find_problem(params: CheckoutParams, sources: _Sources, workspace: Workspace) -> str | None:
    """Why nothing is done, or None. A replacing checkout is all or nothing, because it deletes all other files."""
    if not sources.files:
        return "Nothing was changed: none of the sources exists."
    if params.mode == "replace" and (sources.missing or sources.invalid):
        return "Nothing was changed: with mode replace, all sources must exist."
    names = set(sources.files)
    if params.mode == "overlay":
        names |= {find_inner_path(file.stored) for file in workspace.own if is_workspace_file(file)}
    if len(names) > MAX_WORKSPACE_FILES:
        return (
            f"Nothing was changed: files/ of a turn can have at most {MAX_WORKSPACE_FILES} files; name folders in it."
        )
    clash = find_clash(names)
    return f"Nothing was changed: {clash} would be both a file and a folder." if clash else None


def _describe_checkout(
    params: CheckoutParams, sources: _Sources, body: CheckoutBody, workspace: Workspace
) -> Mapping[str, object]:
    removed = [artifact.path for artifact in body.removed]
    names = {find_inner_path(artifact) for artifact in body.artifacts}
    if params.mode == "overlay":
        names |= {find_inner_path(file.stored) for file in workspace.own if is_workspace_file(file)}
    return {
        "mode": params.mode,
        "checked_out": sources.checked_out,
        "root": f"{workspace.turn_id}/files/",
        "file_count": len(names),
        "files": _first(sorted(names)),
        "removed_count": len(removed) or None,
        "removed": _first(removed),
        "missing": sources.missing,
        "invalid": sources.invalid,
    }


def _first(names: Sequence[str]) -> list[str]:
    more = len(names) - SHOWN_FILES
    return [*names[:SHOWN_FILES], *([f"... and {more} more"] if more > 0 else [])]


class PullParams(BaseModel):
    """Refs of files, or of folders in `files/` of a turn, with a slash at the end."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    paths: list[str] = Field(min_length=1, max_length=MAX_PATHS)


@dataclass(slots=True)
class _Pulling:
    """What one call has pulled so far, and the totals of the turn."""

    files_left: int
    bytes_left: int
    pulled: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    already_local: list[str] = field(default_factory=list[str])
    missing: list[str] = field(default_factory=list[str])
    invalid: list[dict[str, str]] = field(default_factory=list[dict[str, str]])

    def try_count(self, path: str, count: int, size: int) -> bool:
        """Whether files of `size` bytes fit into the limits of the turn; then they are counted."""
        if count > self.files_left or size > self.bytes_left:
            self.invalid.append({"path": path, "reason": _too_much(count)})
            return False
        self.files_left -= count
        self.bytes_left -= size
        return True


class PullTool:
    """`react.pull`: makes files of earlier turns, of the person's other conversations, or of the agent's skills visible
    to programs and searches, read-only. Nothing is copied: the result names the roots, and history provides the bytes.

    Changes only the set of local files: its result block is the record.
    """

    def __init__(self, history: WorkspaceHistory) -> None:
        self._history = history
        self.spec = ToolSpec(
            tool_id=PULL_TOOL,
            summary="Make files of earlier turns or other conversations readable for programs and searches.",
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
            if path.startswith(SCHEME):
                _pull_skill(call.context.skills, path, workspace, pulling)
            else:
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
            target = parse_target(path, context.conversation_id)
        except Invalid as invalid:
            pulling.invalid.append({"path": path, "reason": invalid.detail})
            return
        if _is_local(target, workspace):
            pulling.already_local.append(path)
            return
        owner = Owner(context.principal, context.conversation_id)
        found = await load_target(self._history, owner, target, max_files=MAX_PULL_FILES + 1)
        if not found:
            pulling.missing.append(path)
            return
        size = sum(artifact.size for artifact in found)
        if pulling.try_count(path, len(found), size):
            pulling.pulled.append(_describe_pulled(target, found, size))


def _pull_skill(skills: Skills, path: str, workspace: Workspace, pulling: _Pulling) -> None:
    try:
        selected = skills.select(path)
    except NotFound as missing:
        pulling.invalid.append({"path": path, "reason": missing.detail})
        return
    if any(
        root.ref == selected.ref or (root.is_folder and selected.ref.startswith(root.ref)) for root in workspace.pulled
    ):
        pulling.already_local.append(path)
        return
    size = sum(file.size for file in selected.files)
    if pulling.try_count(path, len(selected.files), size):
        pulling.pulled.append(_describe_pulled_skill(selected, size))


def _is_local(target: FileTarget, workspace: Workspace) -> bool:
    """Whether the turn already has it: among its own files, its attachments, or earlier pulls."""
    if target.conversation_id is None and target.turn_id == workspace.turn_id:
        return True
    local = {file.ref for file in workspace.files.values()} | {root.ref for root in workspace.pulled}
    wanted = target.exact or target.folder or ""
    return target.spell(wanted) in local if target.exact else target.ref in local


def _too_much(count: int) -> str:
    shown = f"more than {MAX_PULL_FILES}" if count > MAX_PULL_FILES else str(count)
    return (
        f"it has {shown} files; one turn can pull {MAX_PULL_FILES} files and {MAX_PULL_BYTES // MIB} MiB in total: "
        "pull single files or a smaller folder"
    )


def _describe_pulled(target: FileTarget, found: Sequence[Artifact], size: int) -> dict[str, Any]:
    first = found[0]
    if target.exact == first.ref:
        return {"ref": target.spell(first.ref), "path": target.place(first.path), "size": size}
    folder = target.folder or ""
    names = [artifact.ref.removeprefix(folder) for artifact in found]
    return _describe_folder(target.spell_folder(), target.folder_path, names, size)


def _describe_pulled_skill(selected: SkillSelection, size: int) -> dict[str, Any]:
    if not selected.is_folder:
        return {"ref": selected.ref, "path": selected.path, "size": size}
    names = [file.path.removeprefix(selected.path) for file in selected.files]
    return _describe_folder(selected.ref, selected.path, names, size)


def _describe_folder(ref: str, path: str, names: Sequence[str], size: int) -> dict[str, Any]:
    described: dict[str, Any] = {
        "ref": ref,
        "path": path,
        "file_count": len(names),
        "size": size,
        "files": names[:SHOWN_FILES],
    }
    if len(names) > SHOWN_FILES:
        described["files_not_listed"] = len(names) - SHOWN_FILES
    return described
