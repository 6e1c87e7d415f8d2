"""Writing one commit of a lease holder: blocks first, which checks the fence and locks the conversation's row, so that
its inbox stands still; then every row that must be true exactly when the blocks are."""

from everturn.errors import Conflict
from everturn.model.block_bodies import EventBody, FeedbackBody, SignalBody
from everturn.model.commits import Commit, Promotion, TurnClose
from everturn.model.conversations import ConversationState
from everturn.model.ids import TurnId
from everturn.model.leases import Lease
from everturn.model.signals import SignalState
from everturn.model.turns import TurnRequest, TurnStatus
from everturn.ports.timelines import InboxMoved
from everturn.postgres.artifacts import append_artifacts
from everturn.postgres.database import Connection
from everturn.postgres.rows import build_request_json, read_payload, read_promoted, read_request, storable
from everturn.postgres.runs.approvals import save_approvals
from everturn.postgres.sources import save_sources

_APPEND = """
SELECT append_blocks($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18)
"""
_EFFECTS = """
INSERT INTO tool_effect (turn_id, conversation_id, tenant, project, user_id, call_id, tool_id, args_hash, effect, state)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
ON CONFLICT (turn_id, call_id) DO UPDATE SET state = EXCLUDED.state
"""
_USAGE = """
INSERT INTO usage_event (turn_id, conversation_id, tenant, project, user_id, model, role, input_tokens, output_tokens,
                         cache_read_tokens, cache_write_tokens, cost_usd, estimated, cost_known)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)
"""
_TOLD = """
UPDATE feedback SET told = true
 WHERE turn_id = $1 AND origin = $2 AND reaction IS NOT DISTINCT FROM $3 AND text = $4 AND NOT told
"""
_CLOSE_TURN = """
UPDATE turn SET status = $2, outcome = $3, error = $4, usage = $5, ended_at = clock_timestamp()
 WHERE id = $1 AND status = 'running'
"""
# A turn that was given up, or cut off, leaves calls of which nobody knows how far they came.
_SETTLE_EFFECTS = """
UPDATE tool_effect SET state = CASE effect WHEN 'irreversible' THEN 'ambiguous' ELSE 'failed' END
 WHERE turn_id = $1 AND state = 'intended'
"""
_CLOSE_CONVERSATION = """
UPDATE conversation
   SET state = $2, title = COALESCE(NULLIF(title, ''), $3, ''), last_activity_at = clock_timestamp()
 WHERE id = $1
"""
_NEXT_TURN = """
INSERT INTO turn (id, conversation_id, tenant, project, user_id, ordinal, lane, roles, request, doorbell_at, rings)
SELECT $2, conversation_id, tenant, project, user_id, ordinal + 1, lane, roles, $3, clock_timestamp(), 1
  FROM turn WHERE id = $1
"""


def holds_blocks_only(commit: Commit) -> bool:
    """Whether append_blocks alone, which is one round trip and its own transaction, writes all of it."""
    rows = (commit.effects, commit.usage, commit.artifacts, commit.signals, commit.sources)
    rows += (commit.requests, commit.withdrawn)
    told = any(isinstance(block.body, FeedbackBody) for block in commit.blocks)
    return commit.close is None and not any(rows) and not told


async def append_blocks(connection: Connection, lease: Lease, commit: Commit) -> int:
    """Returns inbox_seq. Raises StaleFence, or OutOfOrder when the first block doesn't follow the stored last one."""
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
    """All of a commit, in the open transaction. Returns inbox_seq; raises as Timelines.commit does."""
    inbox_seq = await append_blocks(transaction, lease, commit)
    await _save_signals(transaction, commit, inbox_seq)
    await save_approvals(transaction, lease, commit, inbox_seq)
    await _save_told_feedback(transaction, commit)
    await _append_ledgers(transaction, lease, commit)
    await append_artifacts(transaction, lease.principal, lease.conversation_id, commit.artifacts)
    await save_sources(transaction, lease.principal, lease.conversation_id, commit.sources)
    if commit.close is not None:
        if commit.close.seen_inbox != inbox_seq:
            raise InboxMoved(inbox_seq)
        await _close(transaction, lease, commit.turn_id, commit.close)
    return inbox_seq


async def _save_signals(transaction: Connection, commit: Commit, inbox_seq: int) -> None:
    """The conversation's row is locked, and edits and retractions take that lock too: what is read here stays."""
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


async def _save_told_feedback(transaction: Connection, commit: Commit) -> None:
    """By value: feedback that changed since it was read stays fresh."""
    told = [
        (body.turn_id, body.origin, body.reaction, body.text)
        for body in (block.body for block in commit.blocks)
        if isinstance(body, FeedbackBody)
    ]
    if told:
        await transaction.executemany(_TOLD, told)


async def _append_ledgers(transaction: Connection, lease: Lease, commit: Commit) -> None:
    principal = lease.principal
    owner = (commit.turn_id, lease.conversation_id, *principal.owner)
    if commit.effects:
        effects = [(e.call_id, e.tool_id, e.args_hash, e.effect.value, e.state.value) for e in commit.effects]
        await transaction.executemany(_EFFECTS, [owner + effect for effect in effects])
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
    state = _state_after(close)
    title = None if close.title is None else storable(close.title)
    await transaction.execute(_CLOSE_CONVERSATION, lease.conversation_id, state.value, title)
    done = await transaction.execute(
        _CLOSE_TURN,
        turn_id,
        close.status.value,
        None if close.outcome is None else close.outcome.value,
        None if close.error is None else close.error.model_dump_json(),
        # Without its defaults, so that the version before can read it.
        close.usage.model_dump_json(exclude_defaults=True),
    )
    if done != "UPDATE 1":
        raise Conflict(f"{turn_id} is not running.")
    await transaction.execute(_SETTLE_EFFECTS, turn_id)
    if close.promote is not None and not await _promote(transaction, turn_id, close.promote):
        raise InboxMoved(close.seen_inbox)


def _state_after(close: TurnClose) -> ConversationState:
    if close.promote is not None:
        return ConversationState.QUEUED
    return ConversationState.ERROR if close.status is TurnStatus.FAILED else ConversationState.IDLE


async def _promote(transaction: Connection, turn_id: TurnId, promotion: Promotion) -> bool:
    """Open the next turn: attachments of its signals in the order they came, bundle and lane of the one that ends.

    False when one of the signals is not ACCEPTED any more.
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
