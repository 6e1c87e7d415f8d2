"""F7: Postgres is restarted, killed, paused or full while turns run; every test ends with the history checker."""

import asyncio
import contextlib
import os
import signal
from collections.abc import Awaitable, Callable

import pytest
from faults.chaos import Chaos
from faults.proxy import FaultProxy
from faults.replicas import load_children

from everturn_client.backoff import Timings
from everturn_client.client import EverturnClient
from everturn_client.errors import ProblemError, Unreachable
from everturn_local.servers.databases import DATABASE, INGRESS, WORKER

pytestmark = [pytest.mark.chaos, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(400)]

PAUSE_S = 10.0
GONE_MS = 5_000
OUTAGE_S = 4.0
"""Longer than a lease, which lasts 3 s here."""
ATTEMPTS = 3
"""Workers that may die of a turn before it is given up."""
ENDED_S = 80.0
"""A pause costs a lease and a takeover; each message said meanwhile is one more round or turn."""
ONCE = Timings(connect_s=2.0, answer_s=12.0, attempts=1)
"""A client that reports at once what it was answered."""


async def restart(chaos: Chaos) -> None:
    await chaos.platform.restart("postgres")


async def kill(chaos: Chaos) -> None:
    chaos.platform.auto_restart = True
    await chaos.platform.kill_and_wait("postgres")


async def pause(chaos: Chaos) -> None:
    """The server with all its sessions."""
    sessions = load_children(chaos.platform.pid("postgres"))
    for sig, wait_s in ((signal.SIGSTOP, PAUSE_S), (signal.SIGCONT, 0)):
        chaos.platform.kill("postgres", sig)
        for session in sessions:
            with contextlib.suppress(ProcessLookupError):
                os.kill(session, sig)
        await asyncio.sleep(wait_s)


async def fill(chaos: Chaos) -> None:
    """No role can connect any more, and existing sessions are terminated."""
    roles = f"'{INGRESS}', '{WORKER}'"
    limits = "".join(f"ALTER ROLE {role} CONNECTION LIMIT 0;" for role in (INGRESS, WORKER))
    # With a limit it waits until the session is gone; without one the session was only asked to end.
    ended = f"SELECT pg_terminate_backend(pid, {GONE_MS}) FROM pg_stat_activity WHERE usename IN ({roles});"
    await asyncio.to_thread(chaos.platform.postgres.run_sql, limits + ended, database=DATABASE)
    try:
        assert await ask(chaos, "new") == 503
    finally:
        freed = "".join(f"ALTER ROLE {role} CONNECTION LIMIT -1;" for role in (INGRESS, WORKER))
        await asyncio.to_thread(chaos.platform.postgres.run_sql, freed, database=DATABASE)


async def ask(chaos: Chaos, conversation_id: str) -> int:
    """The answer to one message, without a second attempt."""
    async with EverturnClient(chaos.harness.clients[0].base_url, timings=ONCE) as client:
        try:
            await client.send_message(conversation_id, "script:plain please")
        except ProblemError as error:
            return error.problem.status
        except Unreachable:
            return 0
    return 202


@pytest.mark.parametrize("fault", [restart, kill, pause, fill])
async def test_accepted_messages_survive_outages_of_postgres(
    chaos: Chaos, fault: Callable[[Chaos], Awaitable[None]]
) -> None:
    running = await chaos.harness.clients[0].send_message("new", "script:slow please")
    watchers = [chaos.harness.watch(running.conversation_id), chaos.harness.watch(running.conversation_id, ingress=1)]
    await watchers[0].wait_text(running.turn_id, "thinking")

    breaking = asyncio.create_task(fault(chaos))
    answers: list[int] = []
    while not breaking.done():
        answers.append(await ask(chaos, running.conversation_id))
        await asyncio.wait({breaking}, timeout=1.0)
    await breaking
    later = await chaos.harness.clients[1].send_message(running.conversation_id, "script:plain please")

    for watcher in watchers:
        await watcher.wait_ended(running.turn_id, ENDED_S)
        await watcher.wait_ended(later.turn_id, ENDED_S)
        await watcher.wait_until(lambda w: w.state is not None and w.state.conversation.state == "idle")
    assert set(answers) <= {0, 202, 503}
    state = await chaos.harness.check_invariants(running.conversation_id, *watchers)
    said = sum(1 + len(turn.signals) for turn in state.turns) - sum(
        1 for turn in state.turns for signal in turn.signals if signal.state == "promoted"
    )
    # A lost answer may have been a yes; a yes is never lost.
    assert 2 + answers.count(202) <= said <= 2 + answers.count(202) + answers.count(0) + answers.count(503)
    await chaos.harness.close()


@pytest.mark.parametrize("break_link", [pytest.param(FaultProxy.refuse, marks=pytest.mark.slow), FaultProxy.silence])
async def test_repeated_outages_do_not_count_as_attempts(
    chaos: Chaos, break_link: Callable[[FaultProxy], None]
) -> None:
    sent = await chaos.harness.clients[0].send_message("new", "script:endless please")
    watcher = chaos.harness.watch(sent.conversation_id)
    links = [
        proxy
        for (service, server), proxy in chaos.links.between.items()
        if (service[:6], server) == ("worker", "postgres")
    ]
    await watcher.wait_text(sent.turn_id, "answer")

    for _ in range(ATTEMPTS):
        fence = await load_fence(chaos, sent.conversation_id)
        for link in links:
            break_link(link)
        await asyncio.sleep(OUTAGE_S)
        for link in links:
            link.heal()
        async with asyncio.timeout(ENDED_S):
            while await load_fence(chaos, sent.conversation_id) == fence:  # noqa: ASYNC110 - another process's row
                await asyncio.sleep(0.2)
    await chaos.harness.clients[0].send_signal(sent.conversation_id, "cancel", "", target_turn_id=sent.turn_id)

    turn = await watcher.wait_ended(sent.turn_id)
    # Given up, it would have failed.
    assert turn.status == "cancelled"
    await chaos.harness.check_invariants(sent.conversation_id, watcher)
    await chaos.harness.close()


async def load_fence(chaos: Chaos, conversation_id: str) -> int:
    sql = f"SELECT fence FROM conversation WHERE id = '{conversation_id}'"
    return int(await asyncio.to_thread(chaos.platform.postgres.run_sql, sql, database=DATABASE))
