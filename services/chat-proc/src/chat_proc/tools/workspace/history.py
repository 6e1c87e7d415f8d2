"""`git.log`, `git.diff`, `git.blame` and `git.remove`: the history of a workspace whose turns are commits."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from importlib.resources import files as resources
from typing import Annotated, Any, Final

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints

from chat_proc.catalog.tool import Record, ToolCall, ToolOutcome, ToolSpec
from chat_proc.git import GitRules, Repository
from chat_proc.tools.stored_files import build_deletion
from chat_proc.workspace.local import MAX_PATHS
from chat_proc.workspace.naming import find_similar, render_result
from chat_proc.workspace.outside import MAX_FETCHED, MAX_FETCHED_BYTES
from everturn.core.errors import Invalid, NotFound
from everturn.core.kept_folders import KeptFolders, open_root
from everturn.core.refs import check_path, named_artifact_ref
from everturn.files.objects import Objects
from everturn.git import GitUnavailable
from everturn.history.model import FileChange, TurnChanges, WorkspaceChanges
from everturn.history.project import fold_project
from everturn.history.repository import GitHistories, GitHistory, TurnCommit, open_histories
from everturn.timeline.blocks import BlockType, CheckoutBody
from everturn.turns.model import Effect

NOW: Final = "now"
"""Names the files of the turn itself, which is not a commit before it ends."""
SHOWN_PATHS: Final = 10
"""Of a commit in the log."""
MAX_COMMITS: Final = 100
MAX_LINES: Final = 400
Name = Annotated[str, StringConstraints(min_length=1, max_length=120)]


def _strip(path: str) -> str:
    """A path below `files/`, also if it was written with the folder."""
    stripped = path.removeprefix("./").removeprefix("files/").rstrip("/")
    try:
        check_path(stripped)
    except Invalid as invalid:
        raise ValueError(invalid.detail) from invalid
    return stripped


Path = Annotated[str, AfterValidator(_strip)]


@dataclass(frozen=True, slots=True)
class ProjectPorts:
    """The changes of turns, the repositories that are built from them, and those that were fetched from outside, by
    their commit. `rules` say which may be fetched."""

    changes: WorkspaceChanges
    histories: GitHistories
    fetched: KeptFolders[tuple[Repository, str], str]
    rules: GitRules = GitRules()  # noqa: RUF009 - a frozen value


@asynccontextmanager
async def open_projects(changes: WorkspaceChanges, objects: Objects, rules: GitRules) -> AsyncGenerator[ProjectPorts]:
    """The ports over folders of temporary files of this process."""
    async with open_histories(changes, objects) as histories, open_root("everturn-fetched-") as root:
        fetched = KeptFolders[tuple[Repository, str], str](root, max_kept=MAX_FETCHED, max_bytes=MAX_FETCHED_BYTES)
        async with fetched.removing_unused():
            yield ProjectPorts(changes, histories, fetched, rules)


class LogParams(BaseModel):
    """Commits that changed `path`, a file or a folder below `files/`, or all; at most `limit`, newest first."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    path: Path | None = None
    limit: int = Field(default=20, ge=1, le=MAX_COMMITS)


class LogTool:
    """Lists the commits."""

    def __init__(self, ports: ProjectPorts) -> None:
        self._ports = ports
        self.spec = _build_spec(
            "git.log", "List the turns that changed the project, or one file, as commits.", LogParams
        )

    async def run(self, call: ToolCall) -> ToolOutcome:
        params, context = LogParams.model_validate(call.params), call.context
        try:
            async with self._ports.histories.open(context.principal, context.conversation_id) as history:
                found = await asyncio.to_thread(_list_touching, history.commits, params.path)
        except (Invalid, GitUnavailable) as error:
            return ToolOutcome("error", error.detail)
        if not found:
            return ToolOutcome("ok", f"No turn has changed {'files' if params.path is None else params.path} yet.")
        result: dict[str, Any] = {"commits": [_describe(each, params.path) for each in found[: params.limit]]}
        if len(found) > params.limit:
            result["not_listed"] = len(found) - params.limit
        return ToolOutcome("ok", render_result(result))


def _list_touching(commits: Sequence[TurnCommit], path: str | None) -> list[TurnCommit]:
    """Those that changed a path, newest first."""
    return [each for each in reversed(commits) if _find_touched(each.turn, path)]


def _find_touched(turn: TurnChanges, path: str | None) -> list[FileChange]:
    return [each for each in turn.changes if path is None or each.path == path or each.path.startswith(f"{path}/")]


def _describe(commit: TurnCommit, path: str | None) -> dict[str, Any]:
    touched = _find_touched(commit.turn, path)
    names = [f"{each.path} (deleted)" if each.artifact is None else each.path for each in touched[:SHOWN_PATHS]]
    described = {
        "commit": commit.commit[:12],
        "turn": commit.turn.turn_id,
        "time": commit.turn.accepted_at.strftime("%Y-%m-%d %H:%M UTC"),
        "subject": commit.turn.subject,
        "files": names,
    }
    return described | ({"more_files": len(touched) - len(names)} if len(touched) > len(names) else {})


class DiffParams(BaseModel):
    """Two states of the project: a turn, a commit, HEAD, or `now`. `paths` are files or folders below `files/`."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    old: Name = Field(default="HEAD", alias="from")
    new: Name = Field(default=NOW, alias="to")
    paths: tuple[Path, ...] = Field(default=(), max_length=MAX_PATHS)


class DiffTool:
    """Shows what changed between two states."""

    def __init__(self, ports: ProjectPorts) -> None:
        self._ports = ports
        summary = "Show what changed in the project between two turns, or in this turn, as a unified diff."
        self.spec = _build_spec("git.diff", summary, DiffParams)

    async def run(self, call: ToolCall) -> ToolOutcome:
        params, context = DiffParams.model_validate(call.params), call.context
        try:
            async with self._ports.histories.open(context.principal, context.conversation_id) as history:
                old, new = [await self._find(history, name, call) for name in (params.old, params.new)]
                if new is None:
                    return ToolOutcome("ok", "There are no changes: no turn has changed files yet.")
                changed = "" if old == new else await history.diff(old, new, params.paths)
        except (Invalid, NotFound, GitUnavailable) as error:
            return ToolOutcome("error", error.detail)
        return ToolOutcome("ok", changed or "There are no changes.")

    async def _find(self, history: GitHistory, name: str, call: ToolCall) -> TurnCommit | None:
        """None for HEAD before there is a commit."""
        if name != NOW:
            return None if name == "HEAD" and not history.commits else history.find(name)
        context = call.context
        turns = await self._ports.changes.load(context.principal, context.conversation_id, also=context.turn_id)
        if not turns or turns[-1].turn_id != context.turn_id:
            return history.commits[-1] if history.commits else None
        return await self._ports.histories.commit(history, turns[-1])


class BlameParams(BaseModel):
    """Lines of a file at a commit, a turn or HEAD."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    path: Path
    at: Name = "HEAD"
    line_start: int = Field(default=1, ge=1)
    line_count: int = Field(default=200, ge=1, le=MAX_LINES)


class BlameTool:
    """Shows which turn wrote each line."""

    def __init__(self, ports: ProjectPorts) -> None:
        self._ports = ports
        self.spec = _build_spec("git.blame", "Show which turn wrote each line of a file of the project.", BlameParams)

    async def run(self, call: ToolCall) -> ToolOutcome:
        params, context = BlameParams.model_validate(call.params), call.context
        try:
            async with self._ports.histories.open(context.principal, context.conversation_id) as history:
                lines = await history.blame(history.find(params.at), params.path, params.line_start, params.line_count)
        except NotFound:
            return ToolOutcome("error", f"There is no file {params.path!a} at {params.at!a}.")
        except (Invalid, GitUnavailable) as error:
            return ToolOutcome("error", error.detail)
        return ToolOutcome("ok", "\n".join(f"{line.turn_id} {line.line}: {line.text}" for line in lines))


class RemoveParams(BaseModel):
    """Files of the project, as paths below `files/`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    paths: tuple[Path, ...] = Field(min_length=1, max_length=MAX_PATHS)


class RemoveTool:
    """The rows that delete are part of a checkout block, which changes the workspace as other checkouts do."""

    def __init__(self, ports: ProjectPorts) -> None:
        self._ports = ports
        self.spec = ToolSpec(
            tool_id="git.remove",
            summary="Delete files of the project: this turn's workspace and those that follow lack them.",
            guide=resources("chat_proc.tools.workspace").joinpath("git.remove.md").read_text(encoding="utf-8"),
            params=RemoveParams,
            effect=Effect.IDEMPOTENT,
            strategy="exploitation",
        )

    async def run(self, call: ToolCall) -> ToolOutcome:
        params, context = RemoveParams.model_validate(call.params), call.context
        turns = await self._ports.changes.load(context.principal, context.conversation_id, also=context.turn_id)
        present = await asyncio.to_thread(fold_project, turns)
        wanted = dict.fromkeys(params.paths)
        if missing := [path for path in wanted if path not in present]:
            like = [name for path in missing for name in find_similar(path, present, count=2, cutoff=0.6)]
            hint = f" Did you mean {', '.join(dict.fromkeys(like))}?" if like else " Folders are not files."
            return ToolOutcome("error", f"Nothing was deleted: the project has no {', '.join(missing)}.{hint}")
        removed = tuple(build_deletion(call, present[path], path) for path in wanted)
        body = CheckoutBody(mode="overlay", sources=(), artifacts=(), removed=removed)
        ref = named_artifact_ref(context.turn_id, f"workspace.checkout.{call.call_id}")
        return ToolOutcome(
            "ok", render_result({"deleted": [*wanted]}), records=(Record(BlockType.CHECKOUT, ref, body),)
        )


def _build_spec(tool_id: str, summary: str, params: type[BaseModel]) -> ToolSpec:
    return ToolSpec(
        tool_id=tool_id,
        summary=summary,
        guide=resources("chat_proc.tools.workspace").joinpath(f"{tool_id}.md").read_text(encoding="utf-8"),
        params=params,
        effect=Effect.PURE,
        strategy="exploration",
    )


def build_history_tools(ports: ProjectPorts) -> Sequence[LogTool | DiffTool | BlameTool | RemoveTool]:
    """The tools of a workspace with a git history."""
    return (LogTool(ports), DiffTool(ports), BlameTool(ports), RemoveTool(ports))
