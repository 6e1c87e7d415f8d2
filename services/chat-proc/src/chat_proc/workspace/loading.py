"""Completes a turn's workspace from history: the files below pulled roots, and what its blocks no longer tell."""

from collections.abc import Sequence
from dataclasses import dataclass

from chat_proc.workspace.history import WorkspaceHistory
from chat_proc.workspace.limits import MAX_PULL_FILES
from chat_proc.workspace.local import LocalFile, PulledRoot, Workspace, fold_workspace, own_file
from chat_proc.workspace.wishes import Wish, all_files_of, root_wish
from everturn.model.artifacts import Artifact
from everturn.model.blocks import Block, BlockType
from everturn.model.identity import Principal
from everturn.model.ids import ConversationId, TurnId

MAX_OWN_FILES = 2_000
"""Read from rows when the turn's blocks do not begin with its header."""


@dataclass(frozen=True, slots=True)
class Owner:
    """Whose history it is and which conversation is meant where a ref names none."""

    principal: Principal
    conversation_id: ConversationId


async def load_workspace(
    history: WorkspaceHistory, owner: Owner, blocks: Sequence[Block], turn_id: TurnId
) -> Workspace:
    """All that is local in this turn. Raises Unavailable."""
    workspace = await load_own(history, owner, blocks, turn_id)
    for root in workspace.pulled:
        workspace = workspace.plus(await _load_root(history, owner, root))
    return workspace


async def load_own(history: WorkspaceHistory, owner: Owner, blocks: Sequence[Block], turn_id: TurnId) -> Workspace:
    """The workspace without the files below pulled roots. Raises Unavailable."""
    workspace = fold_workspace(blocks, turn_id)
    if any(block.turn_id == turn_id and block.type is BlockType.TURN_HEADER for block in blocks):
        return workspace
    # A summary has taken the place of the turn's first blocks; the rows still know its files.
    rows = await history.load_folder(
        owner.principal, owner.conversation_id, all_files_of(turn_id), max_files=MAX_OWN_FILES
    )
    return workspace.plus(map(own_file, rows))


async def load_wish(
    history: WorkspaceHistory, owner: Owner, wish: Wish, *, max_files: int
) -> tuple[Artifact, ...] | None:
    """The files of a wish, or None when there are none; the exact file comes before a folder of that name."""
    conversation_id = wish.conversation_id or owner.conversation_id
    if wish.exact is not None:
        found = await history.load_files(owner.principal, conversation_id, [wish.exact])
        if found:
            return tuple(found.values())
    if wish.folder is None:
        return None
    return await history.load_folder(owner.principal, conversation_id, wish.folder, max_files=max_files) or None


async def _load_root(history: WorkspaceHistory, owner: Owner, root: PulledRoot) -> list[LocalFile]:
    wish = root_wish(root.ref, owner.conversation_id, is_folder=root.is_folder)
    artifacts = await load_wish(history, owner, wish, max_files=MAX_PULL_FILES) or ()
    return [pulled_file(wish, artifact) for artifact in artifacts]


def pulled_file(wish: Wish, artifact: Artifact) -> LocalFile:
    """A file of another turn or conversation as this turn sees it."""
    return LocalFile(wish.place(artifact.path), wish.spell(artifact.ref), artifact, "pulled")
