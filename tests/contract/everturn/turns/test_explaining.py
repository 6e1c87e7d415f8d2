"""An operator sees where a turn is and what it waits for, in each state that a turn can have."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from everturn.core.errors import NotFound
from everturn.postgres.pool import open_database
from everturn.timeline.turns import SignalKind
from everturn.turns.postgres_approvals import PostgresApprovals
from everturn.turns.postgres_detached import PostgresDetachedRuns
from everturn.turns.postgres_explaining import load_turn_state
from everturn_testing.database_roles import Roles
from everturn_testing.turns.approvals_contract import LONG_S, ask
from everturn_testing.turns.detached_contract import build_start
from everturn_testing.turns.harness import Harness, closing, commit, think
from ingress.operations.explaining import explain_turn

Explain = Callable[[str], Awaitable[str]]


@pytest.fixture
async def explain(database: Any) -> AsyncGenerator[Explain]:
    async with open_database(database.owner, pool_size=1, application_name="test-operator") as owner:

        async def run(turn_or_conversation: str) -> str:
            return "\n".join(explain_turn(await load_turn_state(owner, turn_or_conversation)))

        yield run


async def test_a_queued_turn_names_the_turns_before_it(
    explain: Explain, postgres_harness: Harness, roles: Roles
) -> None:
    await roles.superuser.execute("TRUNCATE conversation CASCADE")
    await postgres_harness.start_turn()
    first, second = await postgres_harness.say(), await postgres_harness.say()

    assert "It is queued; turns ahead of it on its lane: 0." in await explain(str(first.turn_id))
    text = await explain(str(second.turn_id))
    assert "It is queued; turns ahead of it on its lane: 1." in text
    assert "running:      1 turns, 1 of its tenant, 1 of its user" in text

    await roles.superuser.execute(
        "UPDATE turn SET doorbell_at = NULL, rung_at = NULL WHERE id = $1", str(second.turn_id)
    )
    assert "behind its tenant's share of the lane; turns on the lane: 1" in await explain(str(second.turn_id))


async def test_a_running_turn_names_its_worker_and_its_last_commit(explain: Explain, postgres_harness: Harness) -> None:
    claim = await postgres_harness.start_turn()
    await postgres_harness.timelines.commit(claim.lease, commit(claim, think(claim, "a secret thought")))
    await postgres_harness.signal(claim.lease.conversation_id, SignalKind.FOLLOWUP, "And?")

    text = await explain(str(claim.turn_id))

    assert f"fence {claim.lease.fence}, held for 0 s, expires in" in text
    assert "last commit:  react.thinking, round 1, block 1, " in text
    assert "signals:      1 not applied yet" in text
    assert "secret" not in text


async def test_a_claimed_turn_says_how_to_make_its_worker_log_its_tasks(
    explain: Explain, postgres_harness: Harness, roles: Roles
) -> None:
    claim = await postgres_harness.start_turn()

    async def explain_with(owner: str) -> str:
        await roles.superuser.execute(
            "UPDATE lease SET owner = $2 WHERE conversation_id = $1", str(claim.lease.conversation_id), owner
        )
        return await explain(str(claim.turn_id))

    assert "on desk: kill -USR1 4242" in await explain_with("desk:4242")
    in_container = await explain_with("0f3a:1")
    assert "docker kill --signal=USR1 0f3a" in in_container
    assert "kubectl exec 0f3a -- sh -c 'kill -USR1 1'" in in_container

    await postgres_harness.expire_lease(claim.lease.conversation_id)
    assert "USR1" not in await explain(str(claim.turn_id))


async def test_a_lost_worker_is_named_until_another_takes_over(explain: Explain, postgres_harness: Harness) -> None:
    claim = await postgres_harness.start_turn()

    await postgres_harness.expire_lease(claim.lease.conversation_id)

    text = await explain(claim.lease.conversation_id)
    assert "stopped renewing the lease" in text
    assert "expired " in text


async def test_a_turn_that_waits_for_a_person_names_the_call(
    explain: Explain, postgres_harness: Harness, roles: Roles
) -> None:
    approvals = PostgresApprovals(roles.worker)
    claim = await postgres_harness.start_turn()
    await ask(postgres_harness, approvals, claim, timeout_s=LONG_S)
    await approvals.try_park(claim.lease)

    text = await explain(str(claim.turn_id))

    assert "waits for a person's approval" in text
    assert "approval:     " in text


async def test_a_turn_that_waits_for_a_program_names_its_engine(
    explain: Explain, postgres_harness: Harness, roles: Roles
) -> None:
    claim = await postgres_harness.start_turn()
    runs = PostgresDetachedRuns(roles.worker, owner="host:7")
    await runs.save_start(claim.lease, replace(build_start(claim), engine="fargate", task="task-1"))
    await PostgresApprovals(roles.worker).try_park(claim.lease)

    text = await explain(str(claim.turn_id))

    assert "It waits for a program that goes on without it." in text
    assert "detached run: call_1, start 1, on fargate task-1, until " in text
    assert "watched by host:7" in text


async def test_an_ended_turn_says_how_and_whether_clients_know(
    explain: Explain, postgres_harness: Harness, roles: Roles
) -> None:
    claim = await postgres_harness.start_turn()
    await postgres_harness.timelines.commit(claim.lease, closing(claim, seen_inbox=claim.inbox_seq, failed=True))

    assert "its end has not been published yet" in await explain(str(claim.turn_id))
    await roles.superuser.execute("UPDATE turn SET announced_at = now() WHERE id = $1", str(claim.turn_id))
    assert "It has ended: failed. The model did not answer." in await explain(str(claim.turn_id))


async def test_an_unknown_id_is_reported(explain: Explain) -> None:
    with pytest.raises(NotFound):
        await explain("turn_unknown")
