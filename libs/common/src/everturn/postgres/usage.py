"""The report of usage: the ledger of model calls, and the sums of its rows that were deleted."""

from datetime import date

from everturn.model.usage_totals import UsageTotal
from everturn.postgres.database import Database

# A trigger adds to usage_total what is deleted from usage_event, in the same transaction (migration 0014).
_REPORT = """
SELECT tenant, project, user_id, day, model, role, sum(calls)::bigint AS calls,
       sum(unpriced_calls)::bigint AS unpriced_calls, sum(estimated_calls)::bigint AS estimated_calls,
       sum(input_tokens)::bigint AS input_tokens, sum(output_tokens)::bigint AS output_tokens,
       sum(cache_read_tokens)::bigint AS cache_read_tokens, sum(cache_write_tokens)::bigint AS cache_write_tokens,
       sum(cost_usd) AS cost_usd
  FROM (
    SELECT tenant, project, user_id, day, model, role, calls, unpriced_calls, estimated_calls, input_tokens,
           output_tokens, cache_read_tokens, cache_write_tokens, cost_usd
      FROM usage_total WHERE day >= $2 AND day < $3
    UNION ALL
    SELECT tenant, project, user_id, (ts AT TIME ZONE 'UTC')::date, model, role, 1, (NOT cost_known)::int,
           estimated::int, input_tokens, output_tokens, cache_read_tokens, cache_write_tokens, cost_usd
      FROM usage_event
     WHERE ts >= $2::date::timestamp AT TIME ZONE 'UTC' AND ts < $3::date::timestamp AT TIME ZONE 'UTC'
  ) AS used
 WHERE $1::text IS NULL OR tenant = $1
 GROUP BY tenant, project, user_id, day, model, role
 ORDER BY day, tenant, project, user_id, model, role LIMIT $4
"""


class PostgresUsageReport:
    """Needs the migrating role, which becomes everturn_dispatch: the report is about all people."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def load(self, *, tenant: str | None, start: date, end: date, limit: int) -> tuple[UsageTotal, ...]:
        """Totals of the days from `start` to before `end`, the first `limit` of them; of one tenant or of all."""
        async with self._database.connection() as connection, connection.transaction():
            await connection.execute("SET LOCAL ROLE everturn_dispatch")
            rows = await connection.fetch(_REPORT, tenant, start, end, limit)
        return tuple(UsageTotal(**row) for row in rows)
