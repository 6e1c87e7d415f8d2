"""Explains to an operator where a turn is and what it waits for, from its rows alone."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from everturn.core.errors import NotFound
from everturn.postgres.pool import Database

MAX_LISTED = 20
"""Open calls and questions that are listed."""

_ID = """
SELECT id FROM turn WHERE id = $1
UNION ALL (SELECT id FROM turn WHERE conversation_id = $1 ORDER BY ordinal DESC LIMIT 1)
"""
_TURN = """
SELECT t.id, t.conversation_id, t.tenant, t.project, t.user_id, t.status, t.lane, t.attempt, t.outcome,
       concat_ws(' ', t.error::jsonb ->> 'title', t.error::jsonb ->> 'detail') AS error,
       t.created_at, t.started_at, t.ended_at, t.announced_at, t.rung_at, t.leased_s,
       l.owner, l.fence, extract(epoch FROM clock_timestamp() - l.claimed_at)::float8 AS held_s,
       extract(epoch FROM l.expires_at - clock_timestamp())::float8 AS expires_in_s,
       (SELECT count(*) FROM signal s WHERE s.turn_id = t.id AND s.state = 'accepted') AS signals,
       CASE WHEN t.status = 'queued' THEN (
           SELECT count(*) FROM turn o WHERE o.status = 'queued' AND o.lane = t.lane AND o.rung_at IS NOT NULL
              AND (t.rung_at IS NULL OR (o.rung_at, o.id) < (t.rung_at, t.id))
       ) END AS ahead,
       (SELECT count(*) FROM turn o WHERE o.status = 'running' AND o.tenant = t.tenant AND o.user_id = t.user_id)
           AS running_of_user,
       (SELECT count(*) FROM turn o WHERE o.status = 'running' AND o.tenant = t.tenant) AS running_of_tenant,
       (SELECT count(*) FROM turn o WHERE o.status = 'running') AS running
  FROM turn t LEFT JOIN lease l USING (conversation_id)
 WHERE t.id = $1
"""
_LAST_BLOCK = """
SELECT type, round, seq, ts, extract(epoch FROM clock_timestamp() - ts::timestamptz)::float8 AS age_s
  FROM block WHERE conversation_id = $1 AND turn_id = $2 ORDER BY seq DESC LIMIT 1
"""
_CALLS = """
SELECT tool_id, call_id, effect FROM tool_effect WHERE turn_id = $1 AND state = 'intended' ORDER BY call_id LIMIT $2
"""
_QUESTIONS = """
SELECT tool_id, call_id, expires_at FROM approval WHERE turn_id = $1 AND state = 'pending' ORDER BY expires_at LIMIT $2
"""


@dataclass(frozen=True, slots=True)
class LastBlock:
    """The turn's newest commit, `age_s` seconds ago."""

    type: str
    round: int
    seq: int
    ts: str
    age_s: float


@dataclass(frozen=True, slots=True)
class OpenCall:
    """A call of a tool that has begun and has no result."""

    tool_id: str
    call_id: str
    effect: str


@dataclass(frozen=True, slots=True)
class OpenQuestion:
    """A call that waits for a person's approval."""

    tool_id: str
    call_id: str
    expires_at: datetime


@dataclass(frozen=True, slots=True)
class TurnState:
    """The rows of one turn. Ages and times left are in seconds, by the database's clock.

    `owner` to `expires_in_s` are those of the conversation's lease, None without one. `ahead` is the number of turns in
    front of it on its lane, None unless it is queued. `rung_at` is None while its tenant's share of the lane is used
    up. `running` counts all running turns. `error` is empty unless the turn failed.
    """

    id: str
    conversation_id: str
    tenant: str
    project: str
    user_id: str
    status: str
    lane: str
    attempt: int
    outcome: str | None
    error: str
    created_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    announced_at: datetime | None
    rung_at: datetime | None
    leased_s: float
    owner: str | None
    fence: int | None
    held_s: float | None
    expires_in_s: float | None
    signals: int
    ahead: int | None
    running_of_user: int
    running_of_tenant: int
    running: int
    block: LastBlock | None
    calls: tuple[OpenCall, ...]
    questions: tuple[OpenQuestion, ...]


async def load_turn_state(database: Database, turn_or_conversation: str) -> TurnState:
    """The state of the turn with this id, or of the newest turn of this conversation.

    Needs the migrating role, which becomes everturn_dispatch. Raises NotFound.
    """
    async with database.connection() as connection, connection.transaction():
        await connection.execute("SET LOCAL ROLE everturn_dispatch")
        turn_id = await connection.fetchval(_ID, turn_or_conversation)
        row = await connection.fetchrow(_TURN, turn_id)
        if row is None:
            raise NotFound(turn_or_conversation)
        block = await connection.fetchrow(_LAST_BLOCK, row["conversation_id"], turn_id)
        calls = await connection.fetch(_CALLS, turn_id, MAX_LISTED)
        questions = await connection.fetch(_QUESTIONS, turn_id, MAX_LISTED)
    return TurnState(
        **row,
        block=LastBlock(**block) if block is not None else None,
        calls=tuple(OpenCall(**call) for call in calls),
        questions=tuple(OpenQuestion(**question) for question in questions),
    )


def explain_turn(state: TurnState) -> Sequence[str]:
    """Lines for the operator: what the turn is doing or waits for, then the facts. Contains no text of people or
    models."""
    lines = [
        _find_reason(state),
        f"turn:         {state.id} of {state.conversation_id}",
        f"owner:        {state.user_id}, project {state.project}, tenant {state.tenant}, lane {state.lane}",
        f"status:       {state.status}, accepted {_show(state.created_at)}, started {_show(state.started_at)}, "
        f"ended {_show(state.ended_at)}",
        f"attempts:     {state.attempt} since its last commit; held by workers for {state.leased_s:.0f} s before this",
    ]
    if state.owner is not None:
        lines.append(
            f"lease:        {state.owner}, fence {state.fence}, held for {state.held_s or 0:.0f} s, "
            f"{_show_expiry(state.expires_in_s or 0)}"
        )
    if state.block is not None:
        block = state.block
        lines.append(f"last commit:  {block.type}, round {block.round}, block {block.seq}, {block.age_s:.0f} s ago")
    lines += [f"open call:    {call.tool_id}, {call.effect}, {call.call_id}" for call in state.calls]
    lines += [f"approval:     {ask.tool_id}, {ask.call_id}, until {_show(ask.expires_at)}" for ask in state.questions]
    if state.status == "queued":
        lines.append(
            f"running:      {state.running} turns, {state.running_of_tenant} of its tenant, {state.running_of_user} of "
            "its user"
        )
    if state.signals:
        lines.append(f"signals:      {state.signals} not applied yet")
    return lines


def _find_reason(state: TurnState) -> str:
    match state.status:
        case "queued" if state.rung_at is None:
            return (
                f"It is queued behind its tenant's share of the lane; {state.ahead} turns are on the lane. It gets a "
                "place when an earlier turn of the tenant starts."
            )
        case "queued":
            return (
                f"It is queued; {state.ahead} turns are in front of it on its lane. If workers have free slots, it "
                "waits because its user or tenant has as many running turns as are allowed while others wait "
                "(USER_RUNNING_MAX; see 'running' below); otherwise add workers or slots."
            )
        case "waiting":
            return "It waits for a person's approval. No worker holds it, and it ends the wait at the deadline."
        case "running" if state.owner is None:
            return "It is running, but no worker holds it: a sweeper enqueues it again within seconds if workers run."
        case "running" if (state.expires_in_s or 0) <= 0:
            return f"Its worker {state.owner} stopped renewing the lease. A sweeper enqueues it again if workers run."
        case "running":
            return f"Worker {state.owner} runs it. Its log has the turn's lines by turn_id."
        case _ if state.announced_at is None:
            return "It has ended, but its end has not been published yet. A sweeper does so if workers run."
        case _:
            return f"It has ended: {state.outcome or state.status}." + (f" {state.error}" if state.error else "")


def _show(time: datetime | None) -> str:
    return "not yet" if time is None else time.isoformat(timespec="seconds")


def _show_expiry(expires_in_s: float) -> str:
    return f"expires in {expires_in_s:.0f} s" if expires_in_s > 0 else f"expired {-expires_in_s:.0f} s ago"
