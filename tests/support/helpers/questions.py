"""A worker's side of an approval: the request is on the timeline, and its turn waits for a person."""

from dataclasses import replace
from typing import Any

from everturn.core.clock import iso
from everturn.core.ids import ApprovalId, CallId
from everturn.postgres.pool import Database
from everturn.timeline.blocks import ApprovalRequestBody
from everturn.turns.model import ApprovalRequest, approval_id_of
from everturn.turns.postgres_approvals import PostgresApprovals
from everturn.turns.postgres_leases import PostgresLeases
from everturn.turns.postgres_timelines import PostgresTimelines
from everturn_testing.turns.harness import commit, write


async def ask_a_person(database: Database, sent: dict[str, Any]) -> ApprovalId:
    """Claim the turn that the message opened, ask about a call, and park it."""
    leases, timelines = PostgresLeases(database, owner="asking-worker"), PostgresTimelines(database)
    approvals = PostgresApprovals(database)
    claim = await leases.try_claim(sent["conversation_id"])
    assert claim is not None
    call_id = CallId(f"call_{sent['turn_id'].partition('_')[2]}")
    deadline = await approvals.load_deadline(timeout_s=3600)
    asked = ApprovalRequest(approval_id_of(call_id), call_id, "mail.send", "0" * 64, deadline)
    shown = ApprovalRequestBody(
        approval_id=asked.id,
        tool_id=asked.tool_id,
        params={"to": "ann"},
        args_hash=asked.args_hash,
        expires_at=iso(deadline),
    )
    await timelines.commit(claim.lease, replace(commit(claim, write(claim, shown)), requests=(asked,)))
    assert await approvals.try_park(claim.lease)
    return asked.id
