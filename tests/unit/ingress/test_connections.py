"""The page of a connected account, while turns that wait for it can't be signalled."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import httpx2
import pytest
from fastapi import FastAPI
from structlog.testing import capture_logs

from everturn.bundles.registry import BundleListing
from everturn.core.errors import Conflict, DatabaseFault, Unavailable
from everturn.core.identity import Principal
from everturn.core.ids import ApprovalId, ConversationId
from everturn.mcp_connections.connections import AnsweredRequest, OpenRequest
from everturn.turns.inbox import InboxFull
from ingress.admission.limits import CredentialGuard
from ingress.bundles import Bundles
from ingress.connections import ConnectionService, callback_router
from ingress.errors import too_many
from ingress.metrics import IngressMetrics

PATH = "/mcp-connections/callback/desk/mail"


class Book:
    """Three turns wait for the account."""

    async def find_request(self, state: str, *_: object) -> OpenRequest:
        return OpenRequest(Principal("acme", "app", "ann"), "Example Mail")

    async def answer_request(self, state: str, *_: object) -> list[AnsweredRequest]:
        ann = Principal("acme", "app", "ann")
        return [AnsweredRequest(ann, ConversationId(f"conv_{n}"), ApprovalId(f"appr_{n}")) for n in range(3)]


class Chat:
    """Fails for the first signals to a conversation with its errors, and counts those that are stored. Signals to
    `hangs` take forever."""

    def __init__(self, **errors: list[Exception]) -> None:
        self.errors = errors
        self.hangs = ""
        self.signals = Counter[tuple[str, str]]()

    async def accept_signal(self, principal: Principal, conversation_id: str, submission: Any, _: object) -> None:
        if conversation_id == self.hangs:
            await asyncio.Event().wait()
        if errors := self.errors.get(conversation_id):
            raise errors.pop(0)
        self.signals[conversation_id, submission.form.kind] += 1


@pytest.fixture(autouse=True)
def _short_times(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ingress.connections.SIGNAL_S", 0.5)
    monkeypatch.setattr("ingress.connections.SIGNAL_PAUSE_S", 0.01)


async def load_bundles() -> tuple[BundleListing, ...]:
    return (BundleListing("desk", "0" * 64, "Front <desk>"),)


def build_app(chat: Chat, load: Callable[[], Awaitable[tuple[BundleListing, ...]]] = load_bundles) -> FastAPI:
    app = FastAPI()
    app.include_router(callback_router)
    bundles = Bundles(load, monotonic=lambda: 0.0)
    app.state.connections = ConnectionService(Book(), chat, bundles)  # pyright: ignore[reportArgumentType]
    guard = CredentialGuard(None, metrics=IngressMetrics(), monotonic=lambda: 0.0)
    app.state.request_limits = SimpleNamespace(guard=guard)
    return app


async def answer(chat: Chat, **query: str) -> httpx2.Response:
    """What a person sees who connects the account or refuses."""
    transport = httpx2.ASGITransport(build_app(chat))
    async with httpx2.AsyncClient(transport=transport, base_url="http://ingress") as http:
        if "code" in query:
            return await http.post(PATH, data=query)
        return await http.get(PATH, params=query)


@pytest.mark.parametrize("is_away", [False, True])
async def test_the_page_names_the_agent_as_people_know_it(is_away: bool) -> None:
    async def load() -> tuple[BundleListing, ...]:
        if is_away:
            raise Unavailable()
        return await load_bundles()

    transport = httpx2.ASGITransport(build_app(Chat(), load))
    async with httpx2.AsyncClient(transport=transport, base_url="http://ingress") as http:
        page = await http.get(PATH, params={"state": "s", "code": "c"})
    assert f"<b>{'desk' if is_away else 'Front &lt;desk&gt; (desk)'}</b> of the user <b>ann</b>" in page.text


async def test_each_turn_is_signalled_until_it_knows_the_answer() -> None:
    full = InboxFull("64 signals are pending.")
    chat = Chat(
        conv_0=[Unavailable(), too_many("x", retry_after_s=1), full, DatabaseFault()],
        conv_1=[Conflict("It has ended.")],
    )
    page = await answer(chat, state="s", code="c")
    assert (page.status_code, "The agent finishes the connection" in page.text) == (200, True)
    assert chat.signals == {("conv_0", "approve"): 1, ("conv_2", "approve"): 1}


@pytest.mark.parametrize(
    ("query", "title", "kind", "text"),
    [
        ({"state": "s", "code": "c"}, "Signed in", "approve", "Your sign-in is saved, but the agent"),
        ({"state": "s"}, "Not connected", "deny", "Your answer is saved, but the agent"),
    ],
)
async def test_a_person_reloads_the_page_for_a_turn_that_got_no_signal(
    query: dict[str, str], title: str, kind: str, text: str
) -> None:
    chat = Chat(conv_1=[Unavailable("The database is away.")] * 1_000)
    with capture_logs() as logs:
        page = await answer(chat, **query)
    assert (page.status_code, f"<h1>{title}</h1>" in page.text) == (200, True)
    assert f"{text} was not notified yet. Reload this page to try again." in page.text
    assert chat.signals == {("conv_0", kind): 1, ("conv_2", kind): 1}
    assert [(log["conversation_id"], "The database is away." in log["error"]) for log in logs] == [("conv_1", True)]
    chat.errors.clear()
    assert "Reload" not in (await answer(chat, **query)).text
    assert chat.signals["conv_1", kind] == 1


async def test_a_signal_that_fails_ends_neither_the_page_nor_the_others() -> None:
    chat = Chat(conv_0=[RuntimeError("a defect")])
    assert "Reload this page" in (await answer(chat, state="s", code="c")).text
    assert chat.signals == {("conv_1", "approve"): 1, ("conv_2", "approve"): 1}


async def test_a_signal_that_hangs_holds_neither_the_page_nor_the_others() -> None:
    chat = Chat()
    chat.hangs = "conv_0"
    async with asyncio.timeout(10):
        assert "Reload this page" in (await answer(chat, state="s", code="c")).text
    assert chat.signals == {("conv_1", "approve"): 1, ("conv_2", "approve"): 1}
