"""Name servers that don't answer cost the lookups of one turn, not the other turns or other work of the worker."""

import asyncio
import threading
from collections.abc import AsyncIterator, Sequence

import pytest

from chat_proc.tools.web.client import AddressGuard
from chat_proc.tools.web.resolver import NameResolver
from everturn.core.errors import Unavailable
from everturn.core.ids import TurnId

SLOW_TURN, OTHER_TURN = TurnId("turn_slow"), TurnId("turn_other")


class NameServers:
    """Answers for `fast.test`; the others answer when `answer` is set."""

    def __init__(self) -> None:
        self.answer = threading.Event()
        self.are_two_asked = threading.Event()
        self.asked: list[str] = []

    def look_up(self, host: str, port: int) -> Sequence[str]:
        self.asked.append(host)
        if len(self.asked) == 2:
            self.are_two_asked.set()
        if host != "fast.test":
            self.answer.wait(30)
        return ["8.8.8.8"]


@pytest.fixture
async def servers() -> AsyncIterator[NameServers]:
    servers = NameServers()
    yield servers
    servers.answer.set()


@pytest.fixture
def resolver(servers: NameServers) -> NameResolver:
    return NameResolver(servers.look_up, threads=3, threads_per_turn=2)


async def start_slow_lookups(resolver: NameResolver, servers: NameServers) -> list[asyncio.Task[Sequence[str]]]:
    """Five of one turn, of which two can run."""
    lookups = [asyncio.create_task(resolver.resolve(f"slow{n}.test", 80, SLOW_TURN)) for n in range(5)]
    await asyncio.to_thread(servers.are_two_asked.wait, 5)
    return lookups


async def test_the_addresses_of_this_machine_are_found() -> None:
    assert "127.0.0.1" in await NameResolver().resolve("127.0.0.1", 80, OTHER_TURN)


async def test_slow_lookups_leave_threads_to_other_turns_and_work(resolver, servers) -> None:
    lookups = await start_slow_lookups(resolver, servers)

    async with asyncio.timeout(5):
        assert await AddressGuard(resolver.resolve).find_addresses("fast.test", 80, OTHER_TURN) == ("8.8.8.8",)
        assert await asyncio.gather(*(asyncio.to_thread(abs, n) for n in range(50))) == list(range(50))

    assert sorted(servers.asked) == ["fast.test", "slow0.test", "slow1.test"]
    servers.answer.set()
    assert await asyncio.gather(*lookups) == [["8.8.8.8"]] * 5


async def test_lookups_given_up_count_until_their_threads_are_free(resolver, servers, monkeypatch) -> None:
    monkeypatch.setattr("chat_proc.tools.web.client.RESOLVE_TIMEOUT_S", 0.1)
    guard = AddressGuard(resolver.resolve)

    for lookup in await start_slow_lookups(resolver, servers):
        lookup.cancel()
    with pytest.raises(Unavailable, match="not found"):
        await guard.find_addresses("fast.test", 80, SLOW_TURN)
    servers.answer.set()
    monkeypatch.setattr("chat_proc.tools.web.client.RESOLVE_TIMEOUT_S", 5.0)

    assert await guard.find_addresses("fast.test", 80, SLOW_TURN) == ("8.8.8.8",)
    assert servers.asked == ["slow0.test", "slow1.test", "fast.test"]


async def test_a_closed_resolver_drops_the_lookups_that_wait(servers) -> None:
    resolver = NameResolver(servers.look_up, threads=1)
    first = asyncio.create_task(resolver.resolve("slow.test", 80, SLOW_TURN))
    second = asyncio.create_task(resolver.resolve("fast.test", 80, OTHER_TURN))
    await asyncio.sleep(0.05)

    resolver.close()
    with pytest.raises(asyncio.CancelledError):
        await second
    servers.answer.set()

    assert await first == ["8.8.8.8"]
    assert servers.asked == ["slow.test"]
