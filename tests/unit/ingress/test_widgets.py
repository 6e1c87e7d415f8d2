"""The files of widgets that an ingress keeps and loads: anybody with a ticket can ask for them, so both have limits."""

import asyncio

import pytest
from helpers.waiting import wait_until

from everturn.core.clock import SystemClock
from everturn.core.errors import Unavailable
from ingress import widgets
from ingress.auth.signed_tokens import TokenSigner
from ingress.metrics import IngressMetrics
from ingress.widgets import LOADS, Widgets

SIGNER = TokenSigner(b"0123456789abcdef0123456789abcdef")


class Files:
    """Files of 100 bytes, as the database has them; `opened` lets them be loaded."""

    def __init__(self) -> None:
        self.loaded: list[str] = []
        self.running = 0
        self.most = 0
        self.opened = asyncio.Event()
        self.opened.set()

    async def load(self, bundle_id: str, digest: str, path: str) -> bytes:
        self.loaded.append(path)
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            await self.opened.wait()
        finally:
            self.running -= 1
        return path.encode().ljust(100)


@pytest.fixture
def files() -> Files:
    return Files()


@pytest.fixture
def served(files: Files) -> Widgets:
    return Widgets(files.load, SIGNER, SystemClock(), IngressMetrics())


@pytest.fixture
def ticket(served: Widgets) -> str:
    return served.tickets.build("desk", "a" * 64, "board").text


async def test_only_the_files_that_were_used_last_are_kept(
    served: Widgets, files: Files, ticket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(widgets, "CACHE_BYTES", 300)

    for path in ("a", "b", "c", "a", "d", "a", "b"):
        content, _ = await served.load(ticket, path)
        assert content.rstrip() == f"board/{path}".encode()

    # `d` has displaced `b`, and `b` then `c`, because `a` was used in between.
    assert files.loaded == ["board/a", "board/b", "board/c", "board/d", "board/b"]


async def test_only_a_few_files_are_loaded_at_once(served: Widgets, files: Files, ticket: str) -> None:
    files.opened.clear()
    loads = [asyncio.create_task(served.load(ticket, str(number))) for number in range(3 * LOADS)]
    await wait_until(lambda: files.running >= LOADS)
    files.opened.set()
    await asyncio.gather(*loads)

    assert files.most == LOADS


async def test_a_database_that_does_not_answer_delays_nobody_for_long(
    served: Widgets, files: Files, ticket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(widgets, "LOAD_LIMIT_S", 0.05)
    files.opened.clear()

    ends = await asyncio.gather(
        *(served.load(ticket, str(number)) for number in range(3 * LOADS)), return_exceptions=True
    )

    assert {type(end) for end in ends} == {Unavailable}
    files.opened.set()
    assert (await served.load(ticket, "0"))[0]
