"""Reading a conversation from Postgres, in pages limited by rows and by bytes."""

from dataclasses import asdict

from everturn.core.clock import iso
from everturn.core.errors import NotFound
from everturn.core.identity import Principal
from everturn.core.ids import ConversationId
from everturn.feedback.postgres import FEEDBACK_COLUMNS
from everturn.lifecycle.exports import (
    PAGE_BYTES,
    PAGE_ROWS,
    ArtifactLine,
    BlockLine,
    ExportPage,
    FeedbackLine,
    HeaderLine,
    Section,
    SignalLine,
)
from everturn.postgres.pool import Database, Row
from everturn.timeline.blocks import GENESIS_HASH
from everturn.turns.postgres_rows import BLOCK_COLUMNS, SIGNAL_COLUMNS, read_signal

_HEADER = """
SELECT id, title, bundle_id, created_at, last_activity_at, next_seq, last_hash FROM conversation WHERE id = $1
"""
_BLOCKS = f"""
SELECT * FROM (
       SELECT {BLOCK_COLUMNS},
              COALESCE(sum(octet_length(body))
                       OVER (ORDER BY seq ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) AS bytes_before
         FROM (SELECT * FROM block WHERE conversation_id = $1 AND seq > $2 AND seq <= $3 ORDER BY seq LIMIT $4) AS near
       ) AS page
 WHERE bytes_before < $5 ORDER BY seq
"""
_ARTIFACTS = """
SELECT * FROM artifact WHERE conversation_id = $1 AND id > $2 ORDER BY id LIMIT $3
"""
_SIGNALS = f"""
SELECT * FROM (
       SELECT {SIGNAL_COLUMNS},
              COALESCE(sum(octet_length(payload))
                       OVER (ORDER BY id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) AS bytes_before
         FROM (SELECT * FROM signal WHERE conversation_id = $1 AND id > $2 ORDER BY id LIMIT $3) AS near
       ) AS page
 WHERE bytes_before < $4 ORDER BY id
"""
_FEEDBACK = f"""
SELECT id, {FEEDBACK_COLUMNS}
  FROM feedback WHERE conversation_id = $1 AND id > $2 ORDER BY id LIMIT $3
"""


class PostgresExports:
    """Implements Exports. No transaction lasts longer than one page, however slow the reader is."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def load_header(self, principal: Principal, conversation_id: ConversationId) -> HeaderLine:
        async with self._database.transaction(principal, readonly=True) as transaction:
            row = await transaction.fetchrow(_HEADER, conversation_id)
        if row is None:
            raise NotFound(conversation_id)
        return HeaderLine(
            conversation_id=row["id"],
            title=row["title"],
            bundle_id=row["bundle_id"],
            created_at=iso(row["created_at"]),
            last_activity_at=iso(row["last_activity_at"]),
            blocks=row["next_seq"] - 1,
            last_hash=row["last_hash"],
        )

    async def load_blocks(
        self, principal: Principal, conversation_id: ConversationId, *, after: BlockLine | None, last_seq: int
    ) -> tuple[BlockLine, ...]:
        start = after.seq if after else 0
        async with self._database.transaction(principal, readonly=True) as transaction:
            rows = await transaction.fetch(_BLOCKS, conversation_id, start, last_seq, PAGE_ROWS, PAGE_BYTES)
        previous = after.hash if after else GENESIS_HASH
        lines: list[BlockLine] = []
        for row in rows:
            lines.append(_read_block(row, previous))
            previous = row["hash"]
        return tuple(lines)

    async def load_page(
        self, principal: Principal, conversation_id: ConversationId, section: Section, *, after: str
    ) -> ExportPage:
        async with self._database.transaction(principal, readonly=True) as transaction:
            match section:
                case Section.ARTIFACTS:
                    rows = await transaction.fetch(_ARTIFACTS, conversation_id, after, PAGE_ROWS)
                    lines = tuple(map(_read_artifact, rows))
                case Section.SIGNALS:
                    rows = await transaction.fetch(_SIGNALS, conversation_id, after, PAGE_ROWS, PAGE_BYTES)
                    lines = tuple(map(_read_signal, rows))
                case Section.FEEDBACK:
                    rows = await transaction.fetch(_FEEDBACK, conversation_id, int(after or 0), PAGE_ROWS)
                    lines = tuple(map(_read_feedback, rows))
        return ExportPage(lines, str(rows[-1]["id"]) if rows else after)


def _read_block(row: Row, previous: str) -> BlockLine:
    names = ("seq", "turn_id", "round", "type", "ref", "call_id", "body", "ts", "ts_first", "hash")
    return BlockLine(previous=previous, **{name: row[name] for name in names})


def _read_artifact(row: Row) -> ArtifactLine:
    names = ("turn_id", "ref", "rn", "kind", "filename", "mime", "size", "sha256", "visibility", "verdict")
    return ArtifactLine(
        artifact_id=row["id"],
        description=row["description"],
        removed=row["removed"],
        created_at=iso(row["created_at"]),
        **{name: row[name] for name in names},
    )


def _read_signal(row: Row) -> SignalLine:
    signal = read_signal(row)
    return SignalLine(
        signal_id=signal.id,
        turn_id=signal.turn_id,
        kind=signal.kind.value,
        state=signal.state.value,
        text=signal.text,
        attachments=tuple(artifact.id for artifact in signal.attachments),
        event=asdict(signal.event) if signal.event else None,
        approval_id=signal.approval_id,
        round=signal.round,
        promoted_to=signal.promoted_to,
        created_at=iso(signal.created_at),
    )


def _read_feedback(row: Row) -> FeedbackLine:
    names = ("turn_id", "origin", "reaction", "text", "confidence")
    return FeedbackLine(ts=iso(row["ts"]), **{name: row[name] for name in names})
