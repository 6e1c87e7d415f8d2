"""The changes of turns in memory."""

from collections.abc import Mapping

from everturn.core.errors import NotFound
from everturn.core.identity import Principal
from everturn.core.ids import ConversationId, TurnId
from everturn.files.model import WHITEOUT_MIME, Artifact, ArtifactKind, find_inner_path
from everturn.history.model import (
    FileVersion,
    KnownFile,
    Origin,
    TurnChanges,
    build_changes,
    build_subject,
    check_changes,
    check_versions,
    fold_versions,
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

    async def load_known_files(
        self, principal: Principal, conversation_id: ConversationId, origin: Origin, *, also: TurnId | None = None
    ) -> Mapping[str, KnownFile]:
        try:
            rows = self._platform.conversation(principal, conversation_id).artifacts
        except NotFound:
            return {}
        check_versions(len(rows))
        turns = [row.turn for row in sorted(self._platform.turns_of(conversation_id), key=lambda row: row.turn.ordinal)]
        ended = [turn.id for turn in turns if not turn.status.is_open or turn.id == also]
        files = [row for row in rows if row.kind is ArtifactKind.FILE]
        return fold_versions(self._read(row, origin) for id in ended for row in files if row.turn_id == id)

    def _read(self, row: Artifact, origin: Origin) -> FileVersion:
        state = ("deleted" if row.removed else "written") if self._counts(row) else "nothing"
        is_imported = not row.removed and row.description == origin.mark
        return FileVersion(row.turn_id, find_inner_path(row), row.sha256, state, is_imported)

    def _counts(self, row: Artifact) -> bool:
        is_removed = row.removed and row.mime != WHITEOUT_MIME
        return not is_removed and row.object_key not in self._platform.revoked
