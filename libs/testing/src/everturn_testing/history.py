"""The changes of turns in memory."""

from everturn.core.errors import NotFound
from everturn.core.identity import Principal
from everturn.core.ids import ConversationId, TurnId
from everturn.files.model import WHITEOUT_MIME, Artifact, ArtifactKind
from everturn.history.model import (
    Origin,
    TurnChanges,
    build_changes,
    build_subject,
    check_changes,
    read_origin,
)
from everturn.history.project import settle_changes
from everturn_testing.in_memory_platform import MemoryPlatform


class MemoryWorkspaceChanges:
    """Implements WorkspaceChanges."""

    def __init__(self, platform: MemoryPlatform) -> None:
        self._platform = platform

    async def load(
        self, principal: Principal, conversation_id: ConversationId, *, also: TurnId | None = None
    ) -> tuple[TurnChanges, ...]:
        try:
            rows = self._platform.conversation(principal, conversation_id).artifacts
        except NotFound:
            return ()
        newest = {(row.turn_id, row.ref): row for row in rows if row.kind is ArtifactKind.FILE}
        counted = [row for row in newest.values() if self._counts(row)]
        check_changes(len(counted))
        found: list[TurnChanges] = []
        for row in sorted(self._platform.turns_of(conversation_id), key=lambda row: row.turn.ordinal):
            turn = row.turn
            has_ended = not turn.status.is_open or turn.id == also
            if has_ended and (changed := [each for each in counted if each.turn_id == turn.id]):
                subject = build_subject(turn.request.text)
                found.append(TurnChanges(turn.id, turn.created_at, subject, build_changes(changed)))
        return settle_changes(found)

    async def load_origin(self, principal: Principal, conversation_id: ConversationId) -> Origin | None:
        try:
            rows = self._platform.conversation(principal, conversation_id).artifacts
        except NotFound:
            return None
        origins = (read_origin(row.description) for row in rows if row.kind is ArtifactKind.FILE)
        return next(filter(None, origins), None)

    def _counts(self, row: Artifact) -> bool:
        is_removed = row.removed and row.mime != WHITEOUT_MIME
        return not is_removed and row.object_key not in self._platform.revoked
