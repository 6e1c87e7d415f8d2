"""Completes a turn's workspace from history: the files under pulled roots, and files that its blocks no longer show."""

from collections.abc import Sequence
from dataclasses import dataclass

from chat_proc.workspace.local import (
    MAX_PULL_FILES,
    FileTarget,
    LocalFile,
    PulledRoot,
    Workspace,
    WorkspaceFold,
    all_files_of,
    own_file,
    root_target,
)
from everturn.core.errors import NotFound
from everturn.core.identity import Principal
from everturn.core.ids import ConversationId, TurnId
from everturn.files.model import Artifact
from everturn.files.ports import MAX_PAGE, Artifacts, WorkspaceTurn
from everturn.skills.model import NO_SKILLS, SCHEME, SkillFile, Skills
from everturn.timeline.blocks import Block

MAX_OWN_FILES = 2_000
"""Limit of rows to load if the turn's blocks do not begin with its header."""


class WorkspaceHistory:
    """The files of all turns of a conversation, from their artifact rows; missing files are omitted."""

    def __init__(self, artifacts: Artifacts) -> None:
        self._artifacts = artifacts

    async def load_files(
        self, principal: Principal, conversation_id: ConversationId, refs: Sequence[str]
    ) -> dict[str, Artifact]:
        """The newest content of each of these refs, by ref."""
        wanted = list(dict.fromkeys(refs))
        found: dict[str, Artifact] = {}
        for start in range(0, len(wanted), MAX_PAGE):
            page = await self._artifacts.load_by_refs(principal, conversation_id, wanted[start : start + MAX_PAGE])
            found |= {artifact.ref: artifact for artifact in page}
        return found

    async def load_folder(
        self, principal: Principal, conversation_id: ConversationId, folder: str, *, max_files: int
    ) -> tuple[Artifact, ...]:
        """The files whose refs begin with `folder`, by ref, as their turn left them; at most `max_files`."""
        found: list[Artifact] = []
        while len(found) < max_files:
            limit = min(MAX_PAGE, max_files - len(found))
            after = found[-1].ref if found else ""
            page = await self._artifacts.load_tree(principal, conversation_id, folder, after=after, limit=limit)
            found.extend(page)
            if len(page) < limit:
                break
        return tuple(found)

    async def load_turns(
        self, principal: Principal, conversation_id: ConversationId, *, limit: int
    ) -> tuple[WorkspaceTurn, ...]:
        """The last turns that left files in the workspace, newest first."""
        return await self._artifacts.load_workspace_turns(principal, conversation_id, limit=limit)


@dataclass(frozen=True, slots=True)
class Owner:
    """The owner of the history, and the conversation of refs that name none."""

    principal: Principal
    conversation_id: ConversationId


async def load_workspace(
    history: WorkspaceHistory, owner: Owner, blocks: Sequence[Block], turn_id: TurnId, skills: Skills = NO_SKILLS
) -> Workspace:
    """All local files of this turn, which has these skills. Raises Unavailable."""
    workspace = await load_own(history, owner, blocks, turn_id)
    for root in workspace.pulled:
        workspace = workspace.plus(await _load_root(history, owner, root, skills))
    return workspace


async def load_own(history: WorkspaceHistory, owner: Owner, blocks: Sequence[Block], turn_id: TurnId) -> Workspace:
    """The workspace without the files under pulled roots. Raises Unavailable."""
    fold = WorkspaceFold(turn_id)
    fold.extend(blocks)
    return await complete_own(history, owner, fold)


async def complete_own(history: WorkspaceHistory, owner: Owner, fold: WorkspaceFold) -> Workspace:
    """The workspace of the fold. If a summary has replaced the turn's first blocks, the rows still list its files.
    Raises Unavailable."""
    workspace = fold.workspace
    if fold.has_header:
        return workspace
    folder = all_files_of(workspace.turn_id)
    rows = await history.load_folder(owner.principal, owner.conversation_id, folder, max_files=MAX_OWN_FILES)
    return workspace.plus(map(own_file, rows))


async def load_target(
    history: WorkspaceHistory, owner: Owner, target: FileTarget, *, max_files: int
) -> tuple[Artifact, ...] | None:
    """The files of a target, or None if there are none; an exact file takes precedence over a folder of that name."""
    conversation_id = target.conversation_id or owner.conversation_id
    if target.exact is not None:
        found = await history.load_files(owner.principal, conversation_id, [target.exact])
        if found:
            return tuple(found.values())
    if target.folder is None:
        return None
    return await history.load_folder(owner.principal, conversation_id, target.folder, max_files=max_files) or None


async def _load_root(history: WorkspaceHistory, owner: Owner, root: PulledRoot, skills: Skills) -> list[LocalFile]:
    if root.ref.startswith(SCHEME):
        try:
            return [pulled_skill_file(file) for file in skills.select(root.ref).files]
        except NotFound:
            return []
    target = root_target(root.ref, owner.conversation_id, is_folder=root.is_folder)
    artifacts = await load_target(history, owner, target, max_files=MAX_PULL_FILES) or ()
    return [pulled_file(target, artifact) for artifact in artifacts]


def pulled_file(target: FileTarget, artifact: Artifact) -> LocalFile:
    """A file of another turn or conversation, as seen from this turn."""
    return LocalFile(target.place(artifact.path), target.spell(artifact.ref), artifact, "pulled")


def pulled_skill_file(file: SkillFile) -> LocalFile:
    """A file of a skill, as seen from a turn that pulled it."""
    return LocalFile(file.path, file.ref, file, "pulled")
