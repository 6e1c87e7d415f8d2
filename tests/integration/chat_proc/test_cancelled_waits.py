"""A wait for signals that is cancelled while its connection to Postgres breaks: the cancellation is never lost."""

import asyncio
from collections.abc import AsyncIterator
from urllib.parse import urlsplit

import pytest
from faults.proxy import FaultProxy

from chat_proc.turn.inbox import TurnInbox
from everturn.core.cancellation import Ran, Stragglers, run_until
from everturn.core.identity import Principal
from everturn.core.ids import TurnId
from everturn.core.retry import RetryPolicy
from everturn.postgres.pool import Database, open_database
from everturn.turns.postgres_timelines import PostgresTimelines
from everturn_local.servers.databases import DatabaseUrls

ANN, TURN = Principal("acme", "support", "ann"), TurnId("turn_01a20998-fbe7-7a8e-af3a-3be347a21000")


@pytest.fixture
async def proxy() -> AsyncIterator[FaultProxy]:
    proxy = FaultProxy()
    await proxy.start()
    yield proxy
    await proxy.stop()


@pytest.fixture
async def far_database(database: DatabaseUrls, proxy: FaultProxy) -> AsyncIterator[Database]:
    """The worker's database behind the proxy, which has carried nothing yet."""
    url = urlsplit(database.worker)
    assert url.hostname
    assert url.port
    proxy.target = url.hostname, url.port
    address = url._replace(netloc=f"{url.netloc.rpartition(':')[0]}:{proxy.port}").geturl()
    async with open_database(address, pool_size=1, application_name="test") as opened:
        yield opened


@pytest.mark.parametrize("statement", [b"set_config", b"FROM signal"])
@pytest.mark.parametrize("cut_after_s", [None, 0.0, 0.01, 0.05, 0.09, 0.11, 0.3])
async def test_a_cancelled_wait_ends_when_its_connection_breaks(
    far_database: Database, proxy: FaultProxy, statement: bytes, cut_after_s: float | None
) -> None:
    """`cut_after_s` after the cancellation, which may come while the statement, the rollback or the next try is on its
    way; None is just before it."""
    inbox = TurnInbox(PostgresTimelines(far_database), ANN, TURN, 0, report=lambda _: None, retries=RetryPolicy())
    # Much longer than the test may take: a second cancellation would hide that the first was lost.
    stragglers = Stragglers(grace_s=60.0)
    sent = proxy.expect(statement)

    async def work() -> str:
        await sent.wait()
        proxy.silence()
        if cut_after_s is None:
            proxy.cut()
        else:
            asyncio.get_running_loop().call_later(cut_after_s, proxy.cut)
        return "done"

    async with asyncio.timeout(30):
        ran = await run_until(inbox.wait_for_control(), work(), stragglers=stragglers)

    assert ran == Ran("done")
    assert stragglers.count == 0
