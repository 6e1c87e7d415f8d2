"""Detached runs in Postgres: rows under the lease holder's fence, and functions for workers that monitor them."""

from collections.abc import Collection, Sequence
from datetime import timedelta

from everturn.core.identity import Lane, Principal
from everturn.core.ids import CallId, ConversationId, TurnId
from everturn.postgres.pool import Database
from everturn.turns.detached import HOLD_S, MAX_DETAIL_CHARS, MAX_OF_PERSON, DetachedRun, EndedAs, RunStart, WatchedRun
from everturn.turns.model import Lease
from everturn.turns.ports import Ring
from everturn.turns.postgres_effects import check_fence

MAX_TAKEN = 200
"""Runs that one call takes or keeps; it returns five times as many."""

_LOAD = """
SELECT run_id, engine, task, starts, NULLIF(ended_as, '') AS ended_as, detail,
       extract(epoch FROM clock_timestamp() - began_at)::float8 AS age_s
  FROM detached_run WHERE turn_id = $1 AND call_id = $2
"""
_SAVE = """
INSERT INTO detached_run (turn_id, call_id, conversation_id, tenant, project, user_id, run_id, starts, engine, task,
                          holder, held_until, ends_by)
SELECT $1, $2, $3, $4, $5, $6, $7, $8::integer, $9, $10, $11, clock_timestamp() + $12::interval,
       clock_timestamp() + $13::interval
 WHERE $14 > (SELECT count(*) FROM detached_run r WHERE r.ended_as = '' AND (r.turn_id, r.call_id) <> ($1, $2))
ON CONFLICT (turn_id, call_id) DO UPDATE
   SET run_id = excluded.run_id, starts = excluded.starts, engine = excluded.engine, task = excluded.task,
       ended_as = '', detail = '', holder = excluded.holder, held_until = excluded.held_until,
       ends_by = excluded.ends_by
"""
_HOLD = "SELECT * FROM hold_detached_runs($1, $2, $3, $4, $5)"
_SAVE_TASK = "UPDATE detached_run SET task = $2 WHERE run_id = $1"


class PostgresDetachedRuns:
    """Implements DetachedRuns for the worker `owner`."""

    def __init__(self, database: Database, *, owner: str, hold_s: float = HOLD_S) -> None:
        self._database = database
        self._owner = owner
        self._hold = timedelta(seconds=hold_s)

    async def load(self, principal: Principal, turn_id: TurnId, call_id: CallId) -> DetachedRun | None:
        async with self._database.transaction(principal, readonly=True) as transaction:
            row = await transaction.fetchrow(_LOAD, turn_id, call_id)
        return None if row is None else DetachedRun(**row)

    async def save_start(self, lease: Lease, start: RunStart) -> bool:
        owner = start.turn_id, start.call_id, lease.conversation_id, *lease.principal.owner
        lasts = timedelta(seconds=start.time_limit_s)
        async with self._database.transaction(lease.principal) as transaction:
            await check_fence(transaction, lease)
            named = start.run_id, start.starts, start.engine, start.task, self._owner
            saved = await transaction.execute(_SAVE, *owner, *named, self._hold, lasts, MAX_OF_PERSON)
        return saved == "INSERT 0 1"

    async def save_task(self, lease: Lease, run_id: str, task: str) -> None:
        async with self._database.transaction(lease.principal) as transaction:
            await check_fence(transaction, lease)
            await transaction.execute(_SAVE_TASK, run_id, task)

    async def hold(self, engines: Collection[str], *, takes_over: bool = True) -> Sequence[WatchedRun]:
        async with self._database.connection() as connection:
            rows = await connection.fetch(_HOLD, self._owner, list(engines), self._hold, MAX_TAKEN, takes_over)
        return tuple(WatchedRun(**row) for row in rows)

    async def end(self, run_id: str, ended_as: EndedAs, detail: str = "") -> Ring | None:
        async with self._database.connection() as connection:
            woken = await connection.fetchrow(
                "SELECT * FROM end_detached_run($1, $2, $3)", run_id, ended_as, detail[:MAX_DETAIL_CHARS]
            )
        return None if woken is None else Ring(ConversationId(woken["conversation_id"]), Lane(woken["lane"]))

    async def load_known(self, run_ids: Sequence[str]) -> Collection[str]:
        async with self._database.connection() as connection:
            rows = await connection.fetch("SELECT known_detached_runs($1) AS run_id", list(run_ids))
        return {row["run_id"] for row in rows}

    async def remove(self, run_id: str) -> None:
        async with self._database.connection() as connection:
            await connection.execute("SELECT remove_detached_run($1)", run_id)
