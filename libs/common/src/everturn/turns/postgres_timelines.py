"""Timelines in Postgres: what a lease holder reads and writes.

A commit checks the fence first. That locks the conversation's row, so that its inbox can't change. Then come the
blocks, and all rows that must change together with them. Most commits are one call of a function; those with other rows
are a transaction.
"""

import json
from dataclasses import asdict

from everturn.conversations.model import ConversationState
from everturn.core.errors import NotFound, OutOfOrder, StaleFence
from everturn.core.identity import Principal
from everturn.core.ids import ConversationId, TurnId
from everturn.feedback.postgres import build_feedback_row, read_feedback
from everturn.files.postgres import append_artifacts
from everturn.postgres.pool import Connection, Database, replace_nul
from everturn.timeline.blocks import Block, EventBody, FeedbackBody, SignalBody
from everturn.timeline.sources import Source
from everturn.timeline.turns import Signal, SignalState, Turn, TurnRequest, TurnStatus, TurnUsage
from everturn.turns.model import Commit, Lease, Promotion, TurnClose, TurnStart
from everturn.turns.ports import InboxMoved
from everturn.turns.postgres_approvals import save_approvals
from everturn.turns.postgres_rows import (
    BLOCK_COLUMNS,
    SIGNAL_COLUMNS,
    TURN_COLUMNS,
    build_request_json,
    read_blocks,
    read_payload,
    read_promoted,
    read_request,
    read_signal,
    read_turn,
)
from everturn.turns.postgres_sources import load_source_text, load_sources, save_sources

_APPEND = """
SELECT append_commit($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21)
"""
_MARK_FEEDBACK = """
UPDATE feedback SET told = true
 WHERE turn_id = $1 AND origin = $2 AND reaction IS NOT DISTINCT FROM $3 AND text = $4 AND NOT told
"""
_FEEDBACK = """
INSERT INTO feedback (conversation_id, tenant, project, user_id, turn_id, origin, reaction, text, confidence, ts)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
"""
_NEXT_TURN = """
INSERT INTO turn (id, conversation_id, tenant, project, user_id, ordinal, lane, roles, request, doorbell_at, rings)
SELECT $2, conversation_id, tenant, project, user_id, ordinal + 1, lane, roles, $3, clock_timestamp(), 1
  FROM turn WHERE id = $1
"""

_RECENT_BLOCKS = f"SELECT {BLOCK_COLUMNS} FROM load_recent_blocks($1, $2, $3, $4)"
_TURN = f"""
SELECT {TURN_COLUMNS}, leased_s, clock_timestamp() AS read_at
  FROM turn WHERE id = $1
"""
_SIGNALS = f"""
SELECT {SIGNAL_COLUMNS}
  FROM signal WHERE turn_id = $1 ORDER BY inbox_seq
"""
_USED = ("input_tokens", "output_tokens", "cache_read_tokens", "cost_usd", "cost_known")
_SAVE_TITLE = """
UPDATE conversation SET title = COALESCE(NULLIF(title, ''), $3) WHERE id = $1 AND fence = $2 RETURNING title
"""


def _needs_transaction(commit: Commit) -> bool:
    """Whether the commit has rows that append_commit, one call with its own transaction, does not write."""
    rows = (
        commit.artifacts,
        commit.signals,
        commit.sources,
        commit.requests,
        commit.withdrawn,
        commit.feedback,
    )
    has_feedback = any(isinstance(block.body, FeedbackBody) for block in commit.blocks)
    has_promotion = commit.close is not None and commit.close.promote is not None
    return any(rows) or has_feedback or has_promotion


async def _append_commit(connection: Connection, lease: Lease, commit: Commit, close: TurnClose | None) -> int:
    """Write the blocks, the effects and the usage of a commit, and end its turn if `close` is given. Returns inbox_seq.

    Raises InboxMoved, StaleFence, OutOfOrder when the first block doesn't follow the last stored one, and Conflict when
    the turn to end is not running.
    """
    blocks = commit.blocks
    # One row for each call, in its last state: a statement can't change a row a second time.
    effects = {effect.call_id: asdict(effect) for effect in commit.effects}
    inbox_seq = await connection.fetchval(
        _APPEND,
        *lease.principal.owner,
        lease.conversation_id,
        commit.turn_id,
        lease.fence,
        str(commit.cursor),
        blocks[0].seq if blocks else 0,
        [block.turn_id for block in blocks],
        [block.round for block in blocks],
        [block.type.value for block in blocks],
        [block.author.value for block in blocks],
        [block.ref for block in blocks],
        [block.call_id for block in blocks],
        [block.body_json for block in blocks],
        [block.ts for block in blocks],
        [block.ts_first for block in blocks],
        [block.hash for block in blocks],
        json.dumps(list(effects.values())) if effects else None,
        json.dumps([asdict(usage) for usage in commit.usage]) if commit.usage else None,
        None if close is None else _build_close_json(close),
    )
    if close is not None and close.seen_inbox != inbox_seq:
        raise InboxMoved(inbox_seq)
    return inbox_seq


def _build_close_json(close: TurnClose) -> str:
    """The argument of close_turn; append_commit also reads `seen_inbox`."""
    row = {
        "seen_inbox": close.seen_inbox,
        "status": close.status,
        "outcome": close.outcome,
        "error": None if close.error is None else close.error.model_dump_json(),
        # Without defaults, so that the previous version can read it.
        "usage": close.usage.model_dump_json(exclude_defaults=True),
        "state": _state_after(close),
        "title": None if close.title is None else replace_nul(close.title),
    }
    return json.dumps(row)


async def _save_commit(transaction: Connection, lease: Lease, commit: Commit) -> int:
    """Write a whole commit in the open transaction. Returns inbox_seq; raises as Timelines.commit does."""
    inbox_seq = await _append_commit(transaction, lease, commit, None)
    close = commit.close
    if close is not None and close.seen_inbox != inbox_seq:
        raise InboxMoved(inbox_seq)
    await _save_signals(transaction, commit, inbox_seq)
    await save_approvals(transaction, lease, commit, inbox_seq)
    await _mark_shown_feedback(transaction, commit)
    await append_artifacts(transaction, lease.principal, lease.conversation_id, commit.artifacts)
    await save_sources(transaction, lease.principal, lease.conversation_id, commit.sources)
    for given in commit.feedback:
        await transaction.execute(_FEEDBACK, *build_feedback_row(lease.principal, lease.conversation_id, given))
    if close is not None:
        where = lease.conversation_id, commit.turn_id
        await transaction.execute("SELECT close_turn($1, $2, $3)", *where, _build_close_json(close))
        if close.promote is not None and not await _promote(transaction, commit.turn_id, close.promote):
            raise InboxMoved(close.seen_inbox)
    return inbox_seq


async def _save_signals(transaction: Connection, commit: Commit, inbox_seq: int) -> None:
    """The conversation's row is locked, and edits and retractions take the same lock, so what is read here can't
    change."""
    if not commit.signals:
        return
    rows = await transaction.fetch(
        "SELECT id, state, payload FROM signal WHERE id = ANY($1)", [change.signal_id for change in commit.signals]
    )
    stored = {row["id"]: row for row in rows}
    bodies = [block.body for block in commit.blocks]
    folded = {body.signal_id: body.text for body in bodies if isinstance(body, SignalBody | EventBody)}
    for change in commit.signals:
        row = stored.get(change.signal_id)
        if row is None or row["state"] != SignalState.ACCEPTED:
            raise InboxMoved(inbox_seq)
        if read_payload(row["payload"]).text != folded.get(change.signal_id, read_payload(row["payload"]).text):
            raise InboxMoved(inbox_seq)
    await transaction.executemany(
        "UPDATE signal SET state = $2, round = $3 WHERE id = $1",
        [(change.signal_id, change.state.value, change.round) for change in commit.signals],
    )


async def _mark_shown_feedback(transaction: Connection, commit: Commit) -> None:
    """Matches by value, so that feedback that has changed since it was read counts as not shown."""
    shown = [
        (body.turn_id, body.origin, body.reaction, body.text)
        for body in (block.body for block in commit.blocks)
        if isinstance(body, FeedbackBody)
    ]
    if shown:
        await transaction.executemany(_MARK_FEEDBACK, shown)


def _state_after(close: TurnClose) -> ConversationState:
    if close.promote is not None:
        return ConversationState.QUEUED
    return ConversationState.ERROR if close.status is TurnStatus.FAILED else ConversationState.IDLE


async def _promote(transaction: Connection, turn_id: TurnId, promotion: Promotion) -> bool:
    """Open the next turn: its signals' attachments in order of arrival, bundle and lane of the turn that ends.

    False when one of the signals is no longer ACCEPTED.
    """
    ended = read_request(await transaction.fetchval("SELECT request FROM turn WHERE id = $1", turn_id))
    rows = await transaction.fetch(
        "UPDATE signal SET state = 'promoted', promoted_to = $2 WHERE id = ANY($1) AND state = 'accepted'"
        " RETURNING id, payload, inbox_seq",
        list(promotion.signal_ids),
        promotion.turn_id,
    )
    if len(rows) != len(promotion.signal_ids):
        return False
    attachments, events = read_promoted(rows)
    request = TurnRequest(promotion.text, attachments, ended.bundle_id, events, ended.trace, ended.time_zone)
    await transaction.execute(_NEXT_TURN, turn_id, promotion.turn_id, build_request_json(request))
    return True


class PostgresTimelines:
    """Reads under the principal's policy, writes under the lease's fence."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def load_start(
        self, principal: Principal, conversation_id: ConversationId, turn_id: TurnId, *, with_blocks: bool = True
    ) -> TurnStart:
        start = conversation_id, turn_id, with_blocks
        async with self._database.connection() as connection:
            row = await connection.fetchrow(
                "SELECT * FROM load_turn_start($1, $2, $3, $4, $5, $6)", *principal.owner, *start
            )
        if row is None:
            raise NotFound(turn_id)
        return TurnStart(
            read_turn({**row["turn"], "read_at": row["read_at"]}),
            await read_blocks(row["blocks"] or ()),
            TurnUsage(**{name: row[name] for name in _USED}),
            await self.load_sources(principal, conversation_id) if row["has_sources"] else (),
            tuple(map(read_feedback, row["feedback"])),
            has_signals=row["has_signals"],
            has_files=row["has_files"],
            may_have_next=row["may_have_next"],
            skills_revision=row["skills_revision"],
        )

    async def load_recent_blocks(self, principal: Principal, conversation_id: ConversationId) -> tuple[Block, ...]:
        async with self._database.connection() as connection:
            rows = await connection.fetch(_RECENT_BLOCKS, *principal.owner, conversation_id)
        return await read_blocks(rows)

    async def load_turn(self, principal: Principal, turn_id: TurnId) -> Turn:
        async with self._database.transaction(principal, readonly=True) as transaction:
            row = await transaction.fetchrow(_TURN, turn_id)
        if row is None:
            raise NotFound(turn_id)
        return read_turn(row)

    async def load_signals(self, principal: Principal, turn_id: TurnId) -> tuple[Signal, ...]:
        async with self._database.transaction(principal, readonly=True) as transaction:
            return tuple(read_signal(row) for row in await transaction.fetch(_SIGNALS, turn_id))

    async def load_title(self, principal: Principal, conversation_id: ConversationId) -> str:
        async with self._database.transaction(principal, readonly=True) as transaction:
            title = await transaction.fetchval("SELECT title FROM conversation WHERE id = $1", conversation_id)
        if title is None:
            raise NotFound
        return str(title)

    async def save_title(self, lease: Lease, title: str) -> bool:
        wanted = replace_nul(title)
        async with self._database.transaction(lease.principal) as transaction:
            saved = await transaction.fetchval(_SAVE_TITLE, lease.conversation_id, lease.fence, wanted)
        if saved is None:
            raise StaleFence(lease.conversation_id)
        return bool(saved == wanted)

    async def load_sources(self, principal: Principal, conversation_id: ConversationId) -> tuple[Source, ...]:
        async with self._database.transaction(principal, readonly=True) as transaction:
            return await load_sources(transaction, conversation_id)

    async def load_source_text(self, principal: Principal, conversation_id: ConversationId, sid: int) -> str:
        async with self._database.transaction(principal, readonly=True) as transaction:
            return await load_source_text(transaction, conversation_id, sid)

    async def commit(self, lease: Lease, commit: Commit) -> int:
        try:
            async with self._database.connection() as connection:
                if not _needs_transaction(commit):
                    return await _append_commit(connection, lease, commit, commit.close)
                async with connection.transaction():
                    return await _save_commit(connection, lease, commit)
        except OutOfOrder:
            return await self._check_written(lease, commit)

    async def _check_written(self, lease: Lease, commit: Commit) -> int:
        """A commit is retried when its answer was lost: an equal last hash proves that its blocks are already
        stored. The lock makes this transaction wait for a synchronous standby, as the commit may not have done: the
        server ends that wait, and keeps the commit, when its client gives up."""
        async with self._database.transaction(lease.principal) as transaction:
            inbox_seq = await transaction.fetchval(
                "SELECT inbox_seq FROM conversation WHERE id = $1 AND fence = $2 AND last_hash = $3 FOR NO KEY UPDATE",
                lease.conversation_id,
                lease.fence,
                commit.blocks[-1].hash,
            )
        if inbox_seq is None:
            raise OutOfOrder(f"{commit.blocks[0].seq} of {lease.conversation_id}")
        return int(inbox_seq)
