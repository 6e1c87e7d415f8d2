"""`git.browse`, `git.import` and `git.publish`: the repository outside with which a project began."""

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from importlib.resources import files as resources
from itertools import islice
from typing import Annotated, Any, Final

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from chat_proc.catalog.tool import CallDetails, Proposal, Record, Tool, ToolCall, ToolOutcome, ToolSpec
from chat_proc.git import is_branch
from chat_proc.tools.stored_files import Destination, ProducedFile, load_local, save_file
from chat_proc.tools.workspace.history import Path, ProjectPorts
from chat_proc.workspace.loading import WorkspaceHistory
from chat_proc.workspace.local import (
    MAX_FILE_BYTES,
    MAX_PATHS,
    MAX_PULL_BYTES,
    MAX_WORKSPACE_FILES,
    MIB,
    Workspace,
    find_clash,
    is_workspace_file,
)
from chat_proc.workspace.naming import render_result
from chat_proc.workspace.outside import OutsideRepository, build_moved, describe_push
from chat_proc.workspace.publishing import Publication, build_author, build_message, read_time_s
from everturn.core.errors import Conflict, EverturnError, Invalid
from everturn.core.identity import Principal
from everturn.core.ids import CallId, ConversationId, TurnId
from everturn.core.kept_folders import FillRefused
from everturn.core.refs import check_path, named_artifact_ref
from everturn.core.settings import BadSecrets
from everturn.files.model import Artifact, ArtifactKind, find_inner_path
from everturn.files.objects import Objects
from everturn.git import GitCommit, GitUnavailable, TreeEntry
from everturn.history.model import Origin
from everturn.history.project import fold_project
from everturn.history.repository import is_possible_path
from everturn.timeline.blocks import BlockType, CheckoutBody
from everturn.turns.model import Effect

MAX_ENTRIES: Final = 500
"""Of one answer of `git.browse`."""
MAX_NAMED: Final = 20
"""Skipped files that the result names."""
GIT_S: Final = 300.0
"""Limit of a call: a fetch may take two minutes."""
_LFS: Final = b"version https://git-lfs.github.com/spec/"
PUBLISH_S: Final = 600.0
"""Limit of a push, which can fetch the branch first, and look at it again after a failure."""
_FAILURES: Final = (Invalid, GitUnavailable, FillRefused, BadSecrets)


class BrowseParams(BaseModel):
    """A folder of the repository; all of it without one."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    folder: Path | None = None


class BrowseTool:
    """Lists what could be imported."""

    def __init__(self, ports: ProjectPorts, outside: OutsideRepository) -> None:
        self._ports = ports
        self._outside = outside
        self.spec = _build_spec(
            "git.browse", "List a folder of the repository that this project comes from.", BrowseParams, Effect.PURE
        )

    async def run(self, call: ToolCall) -> ToolOutcome:
        params = BrowseParams.model_validate(call.params)
        try:
            origin = await _find_origin(self._ports, self._outside, call)
            async with self._outside.open(origin) as commit:
                entries = await commit.list_folder(params.folder or "")
                names = await asyncio.to_thread(lambda: [*map(_name_entry, islice(entries, MAX_ENTRIES + 1))])
        except _FAILURES as error:
            return ToolOutcome("error", error.detail)
        if not names:
            return ToolOutcome("error", f"The repository has no folder {params.folder!a}.")
        result: dict[str, Any] = {
            "repository": origin.url,
            "commit": origin.commit[:12],
            "entries": names[:MAX_ENTRIES],
        }
        if len(names) > MAX_ENTRIES:
            result["notice"] = f"There are more than {MAX_ENTRIES} entries."
        return ToolOutcome("ok", render_result(result), untrusted=True)


def _name_entry(entry: TreeEntry) -> str:
    """The last part of its path, with a slash if it is a folder."""
    name = entry.path.rpartition("/")[2].encode(errors="replace").decode()
    match entry.kind:
        case "file":
            return name
        case "folder":
            return f"{name}/"
        case kind:
            return f"{name} ({kind})"


class ImportParams(BaseModel):
    """Files or folders of the repository."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    paths: tuple[Path, ...] = Field(min_length=1, max_length=MAX_PATHS)


@dataclass(slots=True)
class _Chosen:
    """The files to import by path, and why others are not."""

    entries: dict[str, TreeEntry] = field(default_factory=dict[str, TreeEntry])
    skipped: list[str] = field(default_factory=list[str])


class ImportTool:
    """The copies are rows of this turn; their description names the commit, which later turns keep to."""

    def __init__(
        self, ports: ProjectPorts, outside: OutsideRepository, history: WorkspaceHistory, objects: Objects
    ) -> None:
        self._ports = ports
        self._outside = outside
        self._history = history
        self._objects = objects
        summary = "Bring files of the repository that this project comes from into this turn's workspace."
        self.spec = _build_spec("git.import", summary, ImportParams, Effect.IDEMPOTENT)

    async def run(self, call: ToolCall) -> ToolOutcome:
        params = ImportParams.model_validate(call.params)
        workspace = await load_local(self._history, call.context)
        try:
            origin = await _find_origin(self._ports, self._outside, call)
            async with self._outside.open(origin) as commit:
                chosen = await asyncio.to_thread(_choose, await commit.list_entries(params.paths), params.paths)
                _check_room(workspace, chosen)
                imported = [await self._save(call, commit, origin, path, chosen) for path in chosen.entries]
        except _FAILURES as error:
            return ToolOutcome("error", f"Nothing was imported: {error.detail}")
        sources = tuple(f"{origin.url}@{origin.commit[:12]}:{path}" for path in chosen.entries)
        body = CheckoutBody(mode="overlay", sources=sources, artifacts=tuple(imported))
        ref = named_artifact_ref(call.context.turn_id, f"workspace.checkout.{call.call_id}")
        result = {
            "repository": origin.url,
            "commit": origin.commit[:12],
            "imported": len(imported),
            "files": [*chosen.entries][:MAX_ENTRIES],
            "skipped": _shorten(chosen.skipped),
        }
        records = (Record(BlockType.CHECKOUT, ref, body),)
        # What it brought can be read from now on.
        return ToolOutcome("ok", render_result(result), records=records, untrusted=True)

    async def _save(self, call: ToolCall, commit: GitCommit, origin: Origin, path: str, chosen: _Chosen) -> Artifact:
        data = await commit.read(chosen.entries[path])
        if data.startswith(_LFS):
            chosen.skipped.append(f"{path}: only the pointer of Git LFS; its content is not part of the repository")
        produced = ProducedFile(Destination(ArtifactKind.FILE, path), data, "internal", "agent", origin=origin)
        return await save_file(self._objects, call, produced)


def _choose(entries: Iterable[TreeEntry], wanted: Sequence[str]) -> _Chosen:
    """The files that a workspace can have. Raises Invalid if a wanted path has none, or if they are too many."""
    chosen, size, seen = _Chosen(), 0, set[str]()
    for entry in entries:
        seen.add(entry.path)
        if why := _find_refusal(entry):
            chosen.skipped.append(f"{entry.path!a}: {why}")
            continue
        size += entry.size
        if len(chosen.entries) == MAX_WORKSPACE_FILES or size > MAX_PULL_BYTES:
            limits = f"{MAX_WORKSPACE_FILES} files or {MAX_PULL_BYTES // MIB} MiB"
            raise Invalid(f"They are more than {limits}. Import smaller folders.")
        chosen.entries[entry.path] = entry
    missing = [path for path in wanted if not any(each == path or each.startswith(f"{path}/") for each in seen)]
    if missing:
        raise Invalid(f"The repository has no {', '.join(missing)}.")
    return chosen


def _find_refusal(entry: TreeEntry) -> str:
    if entry.kind != "file":
        return f"a {'link' if entry.kind == 'link' else 'submodule'}, which a workspace can't have"
    if entry.size > MAX_FILE_BYTES:
        return f"larger than {MAX_FILE_BYTES // MIB} MiB"
    try:
        check_path(entry.path)
    except (Invalid, UnicodeEncodeError):
        return "its name can't be used"
    return "" if is_possible_path(entry.path) else "its name can't be used"


def _check_room(workspace: Workspace, chosen: _Chosen) -> None:
    present = {find_inner_path(file.stored) for file in workspace.own if is_workspace_file(file)}
    names = present.union(chosen.entries)
    if len(names) > MAX_WORKSPACE_FILES:
        raise Invalid(f"files/ of a turn can have at most {MAX_WORKSPACE_FILES} files. Import smaller folders.")
    if clash := find_clash(names):
        raise Invalid(f"{clash} would be both a file and a folder.")


def _shorten(skipped: Sequence[str]) -> list[str]:
    more = len(skipped) - MAX_NAMED
    return [*skipped[:MAX_NAMED], *([f"and {more} more"] if more > 0 else [])]


def _check_branch(branch: str) -> str:
    if not is_branch(branch):
        raise ValueError("must be the name of a branch, such as agents/fix-totals")
    return branch


class PublishParams(BaseModel):
    """The branch, and the message of the commit."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    branch: Annotated[str, AfterValidator(_check_branch)]
    message: str = Field(min_length=1, max_length=4_000)


class PublishTool:
    """A person approves each call, and sees the commit that it pushes. The credential stays on the worker.

    A call can be repeated: the commit that was approved has one name, which says whether the branch has it already.
    """

    def __init__(self, ports: ProjectPorts, outside: OutsideRepository) -> None:
        self._ports = ports
        self._outside = outside
        guide = resources("chat_proc.tools.workspace").joinpath("git.publish.md").read_text(encoding="utf-8")
        self.spec = ToolSpec(
            tool_id="git.publish",
            summary="Push the project as a commit to a branch of the repository that it comes from.",
            guide=guide.replace("{branches}", outside.branches),
            params=PublishParams,
            effect=Effect.IDEMPOTENT,
            strategy="exploitation",
            cancellable=False,
            timeout_s=PUBLISH_S,
            untrusted=True,
            requires_approval=True,
            describe_call=self.describe,
        )

    async def describe(self, proposal: Proposal) -> CallDetails:
        """The commit that the call would push, and all that a person has to know about it. Raises EverturnError."""
        params = PublishParams.model_validate(proposal.params)
        caller = _Caller(proposal.principal, proposal.conversation_id, proposal.turn_id, proposal.call_id)
        try:
            tip = await self._outside.find_tip(params.branch)
            origin, publication = await self._build(caller, params)
            async with self._outside.prepare(origin, publication, tip) as prepared:
                text = await asyncio.to_thread(describe_push, prepared, publication, origin.url)
                return CallDetails(text, f"{tip}:{prepared.commit}")
        except EverturnError as error:
            raise Invalid(f"Nothing was published: {error.detail}") from error

    async def run(self, call: ToolCall) -> ToolOutcome:
        params, context = PublishParams.model_validate(call.params), call.context
        caller = _Caller(context.principal, context.conversation_id, context.turn_id, call.call_id)
        approved_tip, _, approved = call.approved.partition(":")
        if not approved:
            return ToolOutcome("error", "Nothing was published: no person has seen what would be pushed.")
        try:
            if await self._has_pushed(params.branch, approved_tip, approved):
                return self._report(params, approved)
        except (*_FAILURES, Conflict) as error:
            unknown = "" if isinstance(error, Conflict) else "It is not known whether this was published already. "
            return ToolOutcome("error", f"{unknown}{error.detail}", untrusted=True)
        try:
            origin, publication = await self._build(caller, params)
            async with self._outside.prepare(origin, publication, approved_tip) as prepared:
                if prepared.commit != approved:
                    raise Conflict("The project has changed since a person approved this. Publish again.")
                await self._outside.push(prepared, params.branch)
        except (*_FAILURES, Conflict) as error:
            return ToolOutcome("error", f"Publishing failed: {error.detail}", untrusted=True)
        return self._report(params, approved)

    async def _has_pushed(self, branch: str, approved_tip: str, approved: str) -> bool:
        """Whether an earlier attempt at this call has pushed its commit. Raises Conflict if the branch has moved to
        something else, and as `find_tip`."""
        tip = await self._outside.find_tip(branch)
        if tip in (approved_tip, approved):
            return tip == approved
        if tip and await self._outside.has_pushed(branch, approved):
            return True
        raise build_moved(branch, approved_tip, tip)

    def _report(self, params: PublishParams, commit: str) -> ToolOutcome:
        published = {"repository": self._outside.repository.url, "branch": params.branch, "commit": commit}
        return ToolOutcome("ok", render_result({"published": published}), data={"published": published})

    async def _build(self, caller: "_Caller", params: PublishParams) -> tuple[Origin, Publication]:
        """Raises Invalid, Unavailable."""
        changes, who, conversation_id = self._ports.changes, caller.principal, caller.conversation_id
        message = build_message(params.message, caller.turn_id, caller.call_id)
        origin = await changes.load_origin(who, conversation_id)
        if origin is None:
            raise Invalid("This project has no files of the repository yet. Import those that you change.")
        origin = await self._outside.find_origin(origin)
        turns = await changes.load(who, conversation_id, also=caller.turn_id)
        known = await changes.load_known_files(who, conversation_id, origin, also=caller.turn_id)
        files = await asyncio.to_thread(fold_project, turns)
        return origin, Publication(
            branch=params.branch,
            message=message,
            author=build_author(who.user_id),
            time_s=read_time_s(caller.call_id),
            files={path: file for path, file in files.items() if is_possible_path(path)},
            known=known,
        )


@dataclass(frozen=True, slots=True)
class _Caller:
    principal: Principal
    conversation_id: ConversationId
    turn_id: TurnId
    call_id: CallId


async def _find_origin(ports: ProjectPorts, outside: OutsideRepository, call: ToolCall) -> Origin:
    context = call.context
    return await outside.find_origin(await ports.changes.load_origin(context.principal, context.conversation_id))


def _build_spec(tool_id: str, summary: str, params: type[BaseModel], effect: Effect) -> ToolSpec:
    return ToolSpec(
        tool_id=tool_id,
        summary=summary,
        guide=resources("chat_proc.tools.workspace").joinpath(f"{tool_id}.md").read_text(encoding="utf-8"),
        params=params,
        effect=effect,
        strategy="exploration" if effect is Effect.PURE else "exploitation",
        timeout_s=GIT_S,
        untrusted=True,
    )


def build_outside_tools(
    ports: ProjectPorts, outside: OutsideRepository, history: WorkspaceHistory, objects: Objects
) -> Sequence[Tool]:
    """The tools of a project that comes from a repository."""
    tools: list[Tool] = [BrowseTool(ports, outside), ImportTool(ports, outside, history, objects)]
    return [*tools, PublishTool(ports, outside)] if outside.branches else tools
