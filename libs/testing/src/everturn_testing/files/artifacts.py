"""Artifact rows in memory."""

from collections.abc import Sequence

from everturn.core.errors import NotFound
from everturn.core.identity import Principal
from everturn.core.ids import ArtifactId, ConversationId, TurnId
from everturn.files.model import WHITEOUT_MIME, Artifact, ArtifactKind, Rn
from everturn.files.ports import Revoked, WorkspaceTurn, check_page, end_of_prefix
from everturn_testing.in_memory_platform import MemoryPlatform, same_owner


class MemoryArtifacts:
    """Implements Artifacts."""

    def __init__(self, platform: MemoryPlatform) -> None:
        self._platform = platform

    async def load(self, principal: Principal, artifact_id: ArtifactId) -> Artifact:
        own = [row for row in self._platform.conversations.values() if same_owner(row.principal, principal)]
        for artifact in (artifact for row in own for artifact in row.artifacts):
            if artifact.id == artifact_id:
                if self._is_revoked(artifact):
                    raise Revoked(artifact_id)
                return artifact
        raise NotFound(artifact_id)

    async def load_by_rn(self, principal: Principal, rn: Rn) -> Artifact:
        rows = self._rows(principal, ConversationId(rn.conversation_id))
        for artifact in reversed([row for row in rows if row.rn == str(rn) and not row.removed]):
            return artifact
        raise NotFound(str(rn))

    async def load_by_ref(self, principal: Principal, conversation_id: ConversationId, ref: str) -> Artifact:
        for artifact in await self.load_by_refs(principal, conversation_id, [ref]):
            return artifact
        raise NotFound(ref)

    async def load_by_refs(
        self, principal: Principal, conversation_id: ConversationId, refs: Sequence[str]
    ) -> tuple[Artifact, ...]:
        check_page(len(set(refs)) or 1)
        rows = self._rows(principal, conversation_id)
        newest = {row.ref: row for row in rows if not row.removed or row.mime == WHITEOUT_MIME}
        found = (newest[ref] for ref in dict.fromkeys(refs) if ref in newest)
        return tuple(artifact for artifact in found if not (artifact.removed or self._is_revoked(artifact)))

    async def load_tree(
        self,
        principal: Principal,
        conversation_id: ConversationId,
        ref_prefix: str,
        *,
        after: str = "",
        limit: int = 100,
    ) -> tuple[Artifact, ...]:
        check_page(limit)
        end_of_prefix(ref_prefix)
        newest = {artifact.ref: artifact for artifact in self._rows(principal, conversation_id)}
        wanted = sorted(ref for ref in newest if ref.startswith(ref_prefix) and ref > after)
        there = (newest[ref] for ref in wanted if not (newest[ref].removed or self._is_revoked(newest[ref])))
        return tuple(there)[:limit]

    async def load_workspace_turns(
        self, principal: Principal, conversation_id: ConversationId, *, limit: int = 5
    ) -> tuple[WorkspaceTurn, ...]:
        check_page(limit)
        rows = self._rows(principal, conversation_id)
        newest = {(artifact.turn_id, artifact.ref): artifact for artifact in rows if artifact.kind is ArtifactKind.FILE}
        counts: dict[TurnId, int] = {}
        for (turn_id, _), artifact in newest.items():
            if not (artifact.removed or self._is_revoked(artifact)):
                counts[turn_id] = counts.get(turn_id, 0) + 1
        return tuple(WorkspaceTurn(turn_id, counts[turn_id]) for turn_id in sorted(counts, reverse=True)[:limit])

    async def load_unreferenced(self, principal: Principal, object_keys: Sequence[str]) -> tuple[str, ...]:
        named = self._named(principal)
        return tuple(key for key in object_keys if key not in named)

    async def load_named_keys(self, principal: Principal, conversation_id: ConversationId) -> frozenset[str]:
        return frozenset(key for key in self._named(principal) if key.startswith(f"{conversation_id}/"))

    def _named(self, principal: Principal) -> set[str]:
        own = [row for row in self._platform.conversations.values() if same_owner(row.principal, principal)]
        rows = (artifact for row in own for artifact in row.artifacts)
        return {artifact.object_key for artifact in rows if not self._is_revoked(artifact)}

    def _is_revoked(self, artifact: Artifact) -> bool:
        return artifact.object_key in self._platform.revoked

    def _rows(self, principal: Principal, conversation_id: ConversationId) -> list[Artifact]:
        """Oldest first; empty for another owner's conversation."""
        try:
            return self._platform.conversation(principal, conversation_id).artifacts
        except NotFound:
            return []
