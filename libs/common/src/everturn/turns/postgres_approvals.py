"""Approvals in Postgres: rows of the lease holder's commits, answers of people, parked turns."""

from dataclasses import replace
from datetime import datetime, timedelta

from everturn.core.errors import Conflict, NotFound
from everturn.core.identity import Lane, Principal
from everturn.core.ids import ApprovalId, ConversationId, SignalId, TurnId
from everturn.postgres.pool import Connection, Database, Row
from everturn.timeline.turns import SignalKind, SignalState
from everturn.turns.inbox import IncomingSignal, Receipt
from everturn.turns.model import Approval, ApprovalState, Commit, Lease
from everturn.turns.ports import InboxMoved
from everturn.turns.postgres_rows import read_payload

_OF_TURN = """
SELECT a.id, a.call_id, a.args_hash, a.state, a.signal_id, s.payload
  FROM approval a LEFT JOIN signal s ON s.id = a.signal_id
 WHERE a.turn_id = $1 ORDER BY a.requested_at, a.id
"""
_REQUEST = """
INSERT INTO approval (id, conversation_id, tenant, project, user_id, turn_id, call_id, tool_id, args_hash, expires_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
"""
_WITHDRAW = """
UPDATE approval SET state = 'withdrawn', settled_at = clock_timestamp()
 WHERE turn_id = $1 AND state = 'pending' AND id = ANY($2)
"""
_ANSWERS = {SignalKind.APPROVE: ApprovalState.APPROVED, SignalKind.DENY: ApprovalState.DENIED}


class PostgresApprovals:
    """Implements Approvals."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def load_deadline(self, *, timeout_s: float) -> datetime:
        async with self._database.connection() as connection:
            return await connection.fetchval("SELECT clock_timestamp() + $1::interval", timedelta(seconds=timeout_s))

    async def load_of_turn(self, principal: Principal, turn_id: TurnId) -> tuple[Approval, ...]:
        async with self._database.transaction(principal, readonly=True) as transaction:
            return tuple(map(_read_approval, await transaction.fetch(_OF_TURN, turn_id)))

    async def try_park(self, lease: Lease) -> bool:
        async with self._database.connection() as connection:
            parked = await connection.fetchval(
                "SELECT park_turn($1, $2, $3)", lease.conversation_id, lease.owner, lease.fence
            )
        return bool(parked)


async def save_approvals(transaction: Connection, lease: Lease, commit: Commit, inbox_seq: int) -> None:
    """Write the questions that a commit asks or withdraws.

    Raises InboxMoved when one that it withdraws is not pending. The caller has locked the conversation's row.
    """
    principal = lease.principal
    owner = (lease.conversation_id, *principal.owner, commit.turn_id)
    if commit.requests:
        asked = [
            (each.id, *owner, each.call_id, each.tool_id, each.args_hash, each.expires_at) for each in commit.requests
        ]
        await transaction.executemany(_REQUEST, asked)
    if commit.withdrawn:
        done = await transaction.execute(_WITHDRAW, commit.turn_id, list(commit.withdrawn))
        if done != f"UPDATE {len(commit.withdrawn)}":
            raise InboxMoved(inbox_seq)


async def answer_approval(
    transaction: Connection, conversation_id: ConversationId, signal: IncomingSignal, approval_id: ApprovalId
) -> Receipt:
    """Settle a question; returns a replayed receipt when the same answer was given before. Raises NotFound,
    Conflict."""
    state = _ANSWERS[signal.kind]
    row = await transaction.fetchrow(
        "SELECT * FROM answer_approval($1, $2, $3, $4)", conversation_id, approval_id, state.value, signal.signal_id
    )
    if row is None:
        raise NotFound(approval_id)
    if signal.target_turn_id not in (None, row["turn_id"]):
        raise Conflict(f"{signal.target_turn_id} is not the turn that asks for this approval.")
    lane, woken = Lane(row["lane"]), bool(row["woken"])
    receipt = Receipt(conversation_id, row["turn_id"], signal.signal_id, SignalState.ACCEPTED, ring=woken, lane=lane)
    match row["verdict"]:
        case "answered":
            return receipt
        case "repeated":
            first: SignalId = row["answered_by"]
            present = await transaction.fetchval("SELECT state FROM signal WHERE id = $1", first)
            return replace(receipt, signal_id=first, state=SignalState(present), ring=False, replayed=True)
        case "late":
            raise Conflict("This approval has expired.")
        case "unconnected":
            raise Conflict("An account answers this question. Connect one at its connect_url, or deny it.")
        case _:
            raise Conflict(f"This approval is already {row['present_state']}.")


def _read_approval(row: Row) -> Approval:
    return Approval(
        id=row["id"],
        call_id=row["call_id"],
        args_hash=row["args_hash"],
        state=ApprovalState(row["state"]),
        signal_id=row["signal_id"],
        reason="" if row["payload"] is None else read_payload(row["payload"]).text,
    )
