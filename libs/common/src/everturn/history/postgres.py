"""The changes of turns in Postgres, from the rows of their files."""

import asyncio
import json
import re
from collections.abc import Mapping, Sequence
from itertools import groupby
from operator import itemgetter

from everturn.core.identity import Principal
from everturn.core.ids import ConversationId, TurnId
from everturn.files.model import WHITEOUT_MIME
from everturn.files.postgres import read_artifact
from everturn.history.model import (
    MAX_CHANGES,
    MAX_VERSIONS,
    ORIGIN_FORM,
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
from everturn.postgres.pool import Database, Row

_CHANGES = """
SELECT t.ordinal, n.* FROM (
       SELECT DISTINCT ON (turn_id, ref COLLATE "C") *
         FROM artifact
        WHERE conversation_id = $1 AND kind = 'file'
        ORDER BY turn_id DESC, ref COLLATE "C", created_at DESC, id DESC) AS n
  JOIN turn t ON t.id = n.turn_id AND (t.status IN ('completed', 'failed', 'cancelled') OR t.id = $4)
 WHERE n.revoked_at IS NULL AND (NOT n.removed OR n.mime = $2) ORDER BY t.ordinal LIMIT $3
"""
_IMPORTED = """
SELECT description FROM artifact
 WHERE conversation_id = $1 AND kind = 'file' AND description ~ $2 ORDER BY created_at, id LIMIT 1
"""
_VERSIONS = """
SELECT n.turn_id, n.path, n.sha256, n.description, n.removed, n.mime = $2 AS whiteout,
       n.revoked_at IS NOT NULL AS revoked
  FROM artifact n
  JOIN turn t ON t.id = n.turn_id AND (t.status IN ('completed', 'failed', 'cancelled') OR t.id = $4)
 WHERE n.conversation_id = $1 AND n.kind = 'file' ORDER BY t.ordinal, n.created_at, n.id LIMIT $3
"""
# The JSON of the text, and only its beginning: the messages of all turns can be large.
_TURNS = "SELECT id, created_at, left((request::json -> 'text')::text, 4000) AS text FROM turn WHERE id = ANY($1)"
_STRING = re.compile(r'"(?:[^"\\]|\\[^u]|\\u[0-9a-fA-F]{4})*')


class PostgresWorkspaceChanges:
    """Implements WorkspaceChanges."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def load(
        self, principal: Principal, conversation_id: ConversationId, *, also: TurnId | None = None
    ) -> tuple[TurnChanges, ...]:
        async with self._database.transaction(principal, readonly=True) as transaction:
            rows = await transaction.fetch(_CHANGES, conversation_id, WHITEOUT_MIME, MAX_CHANGES + 1, also)
            check_changes(len(rows))
            turns = await transaction.fetch(_TURNS, list({row["turn_id"] for row in rows}))
        found = {row["id"]: row for row in turns}
        return await asyncio.to_thread(_build, rows, found)

    async def load_origin(self, principal: Principal, conversation_id: ConversationId) -> Origin | None:
        async with self._database.transaction(principal, readonly=True) as transaction:
            description = await transaction.fetchval(_IMPORTED, conversation_id, f"^{ORIGIN_FORM}$")
        return None if description is None else read_origin(description)

    async def load_known_files(
        self, principal: Principal, conversation_id: ConversationId, origin: Origin, *, also: TurnId | None = None
    ) -> Mapping[str, KnownFile]:
        async with self._database.transaction(principal, readonly=True) as transaction:
            rows = await transaction.fetch(_VERSIONS, conversation_id, WHITEOUT_MIME, MAX_VERSIONS + 1, also)
        check_versions(len(rows))
        return await asyncio.to_thread(lambda: fold_versions(_read_version(row, origin) for row in rows))


def _read_version(row: Row, origin: Origin) -> FileVersion:
    is_file = not row["removed"]
    is_deletion = row["removed"] and row["whiteout"]
    return FileVersion(
        turn_id=row["turn_id"],
        path=row["path"].partition("/files/")[2],
        sha256=row["sha256"],
        state="nothing" if row["revoked"] else "written" if is_file else "deleted" if is_deletion else "nothing",
        is_imported=is_file and row["description"] == origin.mark,
    )


def _read_beginning(written: str) -> str:
    """The beginning of a JSON string that was cut."""
    found = _STRING.match(written)
    return json.loads(f'{found[0]}"') if found else ""


def _build(rows: Sequence[Row], turns: Mapping[str, Row]) -> tuple[TurnChanges, ...]:
    return settle_changes(
        [
            TurnChanges(
                turn_id,
                turns[turn_id]["created_at"],
                build_subject(_read_beginning(turns[turn_id]["text"])),
                build_changes(map(read_artifact, changes)),
            )
            for turn_id, changes in groupby(rows, key=itemgetter("turn_id"))
        ]
    )
