"""The files of all turns, behind one port: artifact rows today, another store of history behind the same calls."""

from collections.abc import Sequence
from typing import Protocol

from everturn.model.artifacts import Artifact
from everturn.model.identity import Principal
from everturn.model.ids import ConversationId
from everturn.ports.artifacts import MAX_PAGE, Artifacts, WorkspaceTurn


class WorkspaceHistory(Protocol):
    """Sees the principal's own conversations only; what is not there is left out."""

    async def load_files(
        self, principal: Principal, conversation_id: ConversationId, refs: Sequence[str]
    ) -> dict[str, Artifact]:
        """The newest content of each of these refs, by ref."""
        ...

    async def load_folder(
        self, principal: Principal, conversation_id: ConversationId, folder: str, *, max_files: int
    ) -> tuple[Artifact, ...]:
        """The files whose refs begin with `folder`, by ref, as their turn left them; at most `max_files`."""
        ...

    async def load_turns(
        self, principal: Principal, conversation_id: ConversationId, *, limit: int
    ) -> tuple[WorkspaceTurn, ...]:
        """The last turns that left files in the workspace, newest first."""
        ...


class ArtifactHistory:
    """Implements WorkspaceHistory with artifact rows."""

    def __init__(self, artifacts: Artifacts) -> None:
        self._artifacts = artifacts

    async def load_files(
        self, principal: Principal, conversation_id: ConversationId, refs: Sequence[str]
    ) -> dict[str, Artifact]:
        wanted = list(dict.fromkeys(refs))
        found: dict[str, Artifact] = {}
        for start in range(0, len(wanted), MAX_PAGE):
            page = await self._artifacts.load_by_refs(principal, conversation_id, wanted[start : start + MAX_PAGE])
            found |= {artifact.ref: artifact for artifact in page}
        return found

    async def load_folder(
        self, principal: Principal, conversation_id: ConversationId, folder: str, *, max_files: int
    ) -> tuple[Artifact, ...]:
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
        return await self._artifacts.load_workspace_turns(principal, conversation_id, limit=limit)
