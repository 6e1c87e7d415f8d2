"""Timelines in Postgres: reading blocks, and writing one commit of a lease holder.

Blocks are written first. That checks the fence and locks the conversation's row, so that its inbox can't change. Then
come all rows that must change together with the blocks.
"""

from everturn.conversations.model import ConversationState
from everturn.core.errors import Conflict, NotFound, OutOfOrder, StaleFence
from everturn.core.identity import Principal
from everturn.core.ids import ConversationId, TurnId
from everturn.events.cursor import EventCursor
from everturn.feedback.postgres import FEEDBACK_COLUMNS, read_feedback
from everturn.files.postgres import append_artifacts
from everturn.postgres.pool import Connection, Database, replace_nul
from everturn.timeline.blocks import Block
from everturn.timeline.bodies import EventBody, FeedbackBody, SignalBody
from everturn.timeline.sources import Source
from everturn.timeline.turns import Signal, SignalState, Turn, TurnRequest, TurnStatus, TurnUsage
from everturn.turns.model import Commit, Lease, Promotion, TurnClose, TurnStart
from everturn.turns.ports import InboxMoved
from everturn.turns.postgres_approvals import CLOSE_APPROVALS, save_approvals
from everturn.turns.postgres_effects import CLOSE_EFFECTS, save_effects
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
SELECT append_blocks($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18)
"""
_USAGE = """
INSERT INTO usage_event (turn_id, conversation_id, tenant, project, user_id, model, role, input_tokens, output_tokens,
                         cache_read_tokens, cache_write_tokens, cost_usd, estimated, cost_known)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)
"""
_MARK_FEEDBACK = """
UPDATE feedback SET told = true
 WHERE turn_id = $1 AND origin = $2 AND reaction IS NOT DISTINCT FROM $3 AND text = $4 AND NOT told
"""
_CLOSE = f"""
WITH effects AS ({CLOSE_EFFECTS}), approvals AS ({CLOSE_APPROVALS}), closed AS (
    UPDATE conversation
       SET state = $7, title = COALESCE(NULLIF(title, ''), $8, ''), last_activity_at = clock_timestamp()
     WHERE id = $6
)
UPDATE turn SET status = $2, outcome = $3, error = $4, usage = $5, ended_at = clock_timestamp()
 WHERE id = $1 AND status = 'running'
"""
_NEXT_TURN = """
INSERT INTO turn (id, conversation_id, tenant, project, user_id, ordinal, lane, roles, request, doorbell_at, rings)
SELECT $2, conversation_id, tenant, project, user_id, ordinal + 1, lane, roles, $3, clock_timestamp(), 1
  FROM turn WHERE id = $1
"""

_BLOCKS = f"""
SELECT {BLOCK_COLUMNS}
  FROM block WHERE conversation_id = $1 AND seq > $2 ORDER BY seq
"""
# The body is canonical JSON: quotes inside texts are escaped, so only the body's own fields match. It is not cast to
# json, because the text of a summary can hold U+0000, which Postgres refuses to unescape.
_COVERED = """
SELECT substring(body FROM '"last_seq":([0-9]+)')::bigint
  FROM block
 WHERE conversation_id = $1 AND type = 'conv.range.summary' AND position('"scope":"history"' IN body) > 0
 ORDER BY seq DESC LIMIT 1
"""
_TURN = f"""
SELECT {TURN_COLUMNS}, leased_s, clock_timestamp() AS read_at
  FROM turn WHERE id = $1
"""
_SIGNALS = f"""
SELECT {SIGNAL_COLUMNS}
  FROM signal WHERE turn_id = $1 ORDER BY inbox_seq
"""
_FEEDBACK = f"""
SELECT {FEEDBACK_COLUMNS}
  FROM feedback WHERE conversation_id = $1 AND NOT told ORDER BY ts, id
"""
_USED = ("input_tokens", "output_tokens", "cache_read_tokens", "cost_usd", "cost_known")
_START = f"""
SELECT {TURN_COLUMNS}, leased_s, clock_timestamp() AS read_at, used.*, ({_COVERED}) AS covered,
       EXISTS (SELECT FROM source WHERE conversation_id = $1) AS has_sources,
       EXISTS (SELECT FROM feedback WHERE conversation_id = $1 AND NOT told) AS has_feedback,
       EXISTS (SELECT FROM signal WHERE turn_id = $2) AS has_signals,
       EXISTS (SELECT FROM artifact WHERE conversation_id = $1 AND kind = 'file') AS has_files
  FROM turn, LATERAL (
       SELECT COALESCE(sum(input_tokens), 0)::bigint AS used_input_tokens,
              COALESCE(sum(output_tokens), 0)::bigint AS used_output_tokens,
              COALESCE(sum(cache_read_tokens), 0)::bigint AS used_cache_read_tokens,
              COALESCE(sum(cost_usd), 0) AS used_cost_usd, COALESCE(bool_and(cost_known), true) AS used_cost_known
         FROM usage_event WHERE turn_id = $2) AS used
 WHERE id = $2
"""
_SAVE_TITLE = """
UPDATE conversation SET title = COALESCE(NULLIF(title, ''), $3) WHERE id = $1 AND fence = $2 RETURNING title
"""
_ANNOUNCE = """
WITH held AS (UPDATE conversation SET event_cursor = $4 WHERE id = $2 AND fence = $3 RETURNING id)
UPDATE turn SET announced_at = clock_timestamp() FROM held WHERE turn.id = $1 AND turn.conversation_id = held.id
"""
# An ended turn does not use `attempt`, because its last commit has set it to 0.
_ANNOUNCING = """
SELECT t.attempt FROM turn t JOIN conversation c ON c.id = t.conversation_id
 WHERE t.id = $1 AND c.id = $2 AND c.fence = $3 AND t.status IN ('completed', 'failed', 'cancelled')
"""
_SAVE_ANNOUNCING = """
UPDATE turn SET attempt = $4
  FROM conversation c
 WHERE turn.id = $1 AND c.id = turn.conversation_id AND c.id = $2 AND c.fence = $3
   AND turn.status IN ('completed', 'failed', 'cancelled')
"""


def holds_blocks_only(commit: Commit) -> bool:
    """Whether append_blocks alone, one round trip with its own transaction, writes all of the commit."""
    rows = (commit.effects, commit.usage, commit.artifacts, commit.signals, commit.sources)
    rows += (commit.requests, commit.withdrawn)
    has_feedback = any(isinstance(block.body, FeedbackBody) for block in commit.blocks)
    return commit.close is None and not any(rows) and not has_feedback


async def append_blocks(connection: Connection, lease: Lease, commit: Commit) -> int:
    """Returns inbox_seq. Raises StaleFence, or OutOfOrder when the first block doesn't follow the last stored one."""
    blocks, principal = commit.blocks, lease.principal
    return await connection.fetchval(
        _APPEND,
        principal.tenant,
        principal.project,
        principal.user_id,
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
    )


async def append_commit(transaction: Connection, lease: Lease, commit: Commit) -> int:
    """Write all of a commit in the open transaction. Returns inbox_seq; raises as Timelines.commit does."""
    inbox_seq = await append_blocks(transaction, lease, commit)
    await _save_signals(transaction, commit, inbox_seq)
    await save_approvals(transaction, lease, commit, inbox_seq)
    await _mark_shown_feedback(transaction, commit)
    await save_effects(transaction, lease, commit)
    await _append_usage(transaction, lease, commit)
    await append_artifacts(transaction, lease.principal, lease.conversation_id, commit.artifacts)
    await save_sources(transaction, lease.principal, lease.conversation_id, commit.sources)
    if commit.close is not None:
        if commit.close.seen_inbox != inbox_seq:
            raise InboxMoved(inbox_seq)
        await _close(transaction, lease, commit.turn_id, commit.close)
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
    """Matches by value, so that feedback changed since it was read stays fresh."""
    shown = [
        (body.turn_id, body.origin, body.reaction, body.text)
        for body in (block.body for block in commit.blocks)
        if isinstance(body, FeedbackBody)
    ]
    if shown:
        await transaction.executemany(_MARK_FEEDBACK, shown)


async def _append_usage(transaction: Connection, lease: Lease, commit: Commit) -> None:
    principal = lease.principal
    owner = (commit.turn_id, lease.conversation_id, *principal.owner)
    if commit.usage:
        tokens = [(u.input_tokens, u.output_tokens, u.cache_read_tokens, u.cache_write_tokens) for u in commit.usage]
        await transaction.executemany(
            _USAGE,
            [
                (*owner, u.model, u.role, *counts, u.cost_usd, u.estimated, u.cost_known)
                for u, counts in zip(commit.usage, tokens, strict=True)
            ],
        )


async def _close(transaction: Connection, lease: Lease, turn_id: TurnId, close: TurnClose) -> None:
    done = await transaction.execute(
        _CLOSE,
        turn_id,
        close.status.value,
        None if close.outcome is None else close.outcome.value,
        None if close.error is None else close.error.model_dump_json(),
        # Without defaults, so that the previous version can read it.
        close.usage.model_dump_json(exclude_defaults=True),
        lease.conversation_id,
        _state_after(close).value,
        None if close.title is None else replace_nul(close.title),
    )
    if done != "UPDATE 1":
        raise Conflict(f"{turn_id} is not running.")
    if close.promote is not None and not await _promote(transaction, turn_id, close.promote):
        raise InboxMoved(close.seen_inbox)


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
        blocks, sources, feedback = (), (), ()
        async with self._database.transaction(principal, readonly=True) as transaction:
            row = await transaction.fetchrow(_START, conversation_id, turn_id)
            if row is None:
                raise NotFound(turn_id)
            if with_blocks:
                blocks = await transaction.fetch(_BLOCKS, conversation_id, row["covered"] or 0)
            if row["has_sources"]:
                sources = await load_sources(transaction, conversation_id)
            if row["has_feedback"]:
                feedback = tuple(map(read_feedback, await transaction.fetch(_FEEDBACK, conversation_id)))
        usage = TurnUsage(**{name: row[f"used_{name}"] for name in _USED})
        has = {"has_signals": row["has_signals"], "has_files": row["has_files"]}
        return TurnStart(read_turn(row), await read_blocks(blocks), usage, sources, feedback, **has)

    async def load_recent_blocks(self, principal: Principal, conversation_id: ConversationId) -> tuple[Block, ...]:
        async with self._database.transaction(principal, readonly=True) as transaction:
            # Two statements: under row level security a subquery would not be used to search the index.
            covered = await transaction.fetchval(_COVERED, conversation_id)
            rows = await transaction.fetch(_BLOCKS, conversation_id, covered or 0)
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
                if holds_blocks_only(commit):
                    return await append_blocks(connection, lease, commit)
                async with connection.transaction():
                    return await append_commit(connection, lease, commit)
        except OutOfOrder:
            return await self._check_written(lease, commit)

    async def load_announcing(self, lease: Lease, turn_id: TurnId) -> int:
        async with self._database.transaction(lease.principal, readonly=True) as transaction:
            tries = await transaction.fetchval(_ANNOUNCING, turn_id, lease.conversation_id, lease.fence)
        if tries is None:
            raise StaleFence(lease.conversation_id)
        return int(tries)

    async def save_announcing(self, lease: Lease, turn_id: TurnId, tries: int) -> None:
        async with self._database.transaction(lease.principal) as transaction:
            done = await transaction.execute(_SAVE_ANNOUNCING, turn_id, lease.conversation_id, lease.fence, tries)
        if done != "UPDATE 1":
            raise StaleFence(lease.conversation_id)

    async def save_announced(self, lease: Lease, turn_id: TurnId, cursor: EventCursor) -> None:
        async with self._database.transaction(lease.principal) as transaction:
            done = await transaction.execute(_ANNOUNCE, turn_id, lease.conversation_id, lease.fence, str(cursor))
        if done != "UPDATE 1":
            raise StaleFence(lease.conversation_id)

    async def _check_written(self, lease: Lease, commit: Commit) -> int:
        """A commit is retried when its answer was lost: an equal last hash proves that its blocks are already
        stored."""
        async with self._database.transaction(lease.principal, readonly=True) as transaction:
            inbox_seq = await transaction.fetchval(
                "SELECT inbox_seq FROM conversation WHERE id = $1 AND fence = $2 AND last_hash = $3",
                lease.conversation_id,
                lease.fence,
                commit.blocks[-1].hash,
            )
        if inbox_seq is None:
            raise OutOfOrder(f"{commit.blocks[0].seq} of {lease.conversation_id}")
        return int(inbox_seq)
