"""One client, from its join to its end, with fakes of the services."""

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, cast

import pytest
from helpers.waiting import wait_until
from helpers.websockets import FakeWebSocket
from pydantic import BaseModel

from everturn.core.errors import Unavailable
from everturn.core.identity import Principal
from everturn.core.tracing import NO_TRACING
from everturn.limits.token_buckets import Level, Limit
from everturn_testing.core import FixedClock
from ingress.admission.limits import BODY_TIMEOUT_S, BodyBudget, CredentialGuard, Drawn
from ingress.admission.slots import OpenSlots
from ingress.auth.callers import Caller
from ingress.auth.revocation import Recheck
from ingress.chat.schemas import SubmissionCaps
from ingress.errors import ProblemError, absent, too_many, unauthorized
from ingress.metrics import IngressMetrics
from ingress.sockets.connection import MAX_OPEN_CALLS, Connection, SocketDependencies
from ingress.sockets.packets import PING, PING_INTERVAL_S, PING_TIMEOUT_S

EVERY_S = 0.01
UPLOAD = '452-1["m",{"a":{"_placeholder":true,"num":0},"b":{"_placeholder":true,"num":1}}]'


class Done(BaseModel):
    """The answer to a call."""

    done: bool = True


class Desk:
    """The services behind a socket: who may join, what calls do, and what is counted."""

    def __init__(self) -> None:
        self.metrics, self.clock = IngressMetrics(), FixedClock()
        self.budget = BodyBudget(max_bytes=10_000, max_bytes_per_user=10_000, metrics=self.metrics)
        self.slots = OpenSlots(max_total=9, max_per_user=9)
        self.caller = Caller(Principal("t", "p", "u"))
        self.drawn: Drawn | ProblemError | None = None
        self.draws: list[bool] = []
        self.refusal: Exception | None = None
        self.payloads: list[dict[str, Any]] = []
        self.may_end = asyncio.Event()
        self.may_end.set()
        self.outcome: ProblemError | None = None

    async def authenticate_socket(self, *_: object, **__: object) -> Caller:
        return self.caller

    async def admit(self, *_: object, write: bool) -> Drawn | None:
        self.draws.append(write)
        if isinstance(self.drawn, ProblemError) and len(self.draws) > 1:
            raise self.drawn
        return self.drawn if isinstance(self.drawn, Drawn) else None

    async def recheck(self, _: Caller) -> None:
        if self.refusal:
            raise self.refusal

    def table(self) -> dict[str, Callable[[Caller, dict[str, Any]], Awaitable[tuple[int, Done]]]]:
        return {"m": self.run_call, "conv_status.get": self.run_call}

    async def run_call(self, _: Caller, payload: dict[str, Any]) -> tuple[int, Done]:
        self.payloads.append(payload)
        await self.may_end.wait()
        if self.outcome:
            raise self.outcome
        return 200, Done()

    def parts(self) -> SocketDependencies:
        guard = CredentialGuard(None, metrics=self.metrics, monotonic=self.clock.monotonic)
        streams = SimpleNamespace(
            hub=None,
            feed=None,
            slots=self.slots,
            send_timeout_s=60,
            recheck=Recheck(self.recheck, every_s=EVERY_S, monotonic=self.clock.monotonic),
        )
        calls = SimpleNamespace(caps=SubmissionCaps(1000, 2, 1000), table=self.table)
        return SocketDependencies(
            auth=cast(Any, self),
            limits=cast(Any, SimpleNamespace(guard=guard, bodies=self.budget, admit=self.admit)),
            calls=cast(Any, calls),
            streams=cast(Any, streams),
            metrics=self.metrics,
            clock=self.clock,
            tracing=NO_TRACING,
            message_bytes=2000,
        )


@asynccontextmanager
async def joined(desk: Desk) -> AsyncGenerator[FakeWebSocket]:
    """A client that has joined; after it leaves, nothing is counted for it any more."""
    websocket = FakeWebSocket()
    scope = {"type": "websocket", "headers": [], "client": ("127.0.0.1", 1), "everturn.websocket": websocket}
    connection = Connection(desk.parts(), scope, websocket.incoming.get, websocket.send)
    websocket.say("40{}")
    running = asyncio.create_task(connection.run())
    await wait_until(lambda: len(websocket.texts()) >= 3)
    assert [text[:2] for text in websocket.texts()] == ["0{", "40", "42"]
    websocket.sent.clear()
    try:
        yield websocket
    finally:
        websocket.leave()
        desk.may_end.set()
        await asyncio.wait_for(running, 20)
    assert (desk.budget.total, desk.slots.total) == (0, 0)


def statuses(websocket: FakeWebSocket) -> list[int]:
    """Those of the answers, in order."""
    return [json.loads(text[text.index("[") :])[0]["status"] for text in websocket.texts() if text.startswith("43")]


async def test_a_call_has_its_answer_and_its_bytes_count_until_then() -> None:
    desk = Desk()
    desk.may_end.clear()
    async with joined(desk) as websocket:
        websocket.say(UPLOAD, b"zero", b"one", "3")
        await wait_until(lambda: desk.payloads)
        while_it_runs = desk.budget.total
        desk.may_end.set()
        await wait_until(websocket.texts)

        assert websocket.texts() == ['431[{"status":200,"body":{"done":true}}]']
        assert desk.payloads == [{"a": b"zero", "b": b"one"}]
        assert while_it_runs == len(UPLOAD) + 7
        assert desk.budget.total == 0


async def test_a_call_that_is_not_whole_ends_with_the_socket() -> None:
    desk = Desk()
    async with joined(desk) as websocket:
        websocket.say(UPLOAD, b"zero")

    assert desk.payloads == []


async def test_a_call_runs_on_when_its_client_has_gone_and_holds_its_slot() -> None:
    desk = Desk()
    desk.may_end.clear()
    async with joined(desk) as websocket:
        websocket.say('421["m",{}]')
        await wait_until(lambda: desk.payloads)
        websocket.leave()
        await asyncio.sleep(0.05)

        assert desk.slots.total == 1
    assert websocket.texts() == []


async def test_a_call_beyond_the_rate_is_answered_before_its_data_are_read() -> None:
    desk = Desk()
    desk.drawn = too_many("Too many.", retry_after_s=7)
    async with joined(desk) as websocket:
        websocket.say('421["m",{"this is": no JSON', '422["conv_status.get",{}]')
        await wait_until(lambda: len(websocket.texts()) == 2)

        assert statuses(websocket) == [429, 429]
        assert '"retry_after_s":7' in websocket.texts()[0]
        assert desk.draws[1:] == [True, False]


@pytest.mark.parametrize(("problem", "back"), [(too_many("Full.", retry_after_s=5), 1), (absent(), 0)])
async def test_the_token_of_a_call_comes_back_when_it_is_to_come_again_later(problem: ProblemError, back: int) -> None:
    desk, given = Desk(), list[int]()
    desk.outcome = problem

    async def give_back() -> Level:
        given.append(1)
        return Level(8, 0.0)

    async with joined(desk) as websocket:
        desk.drawn = Drawn("writes", Limit(8, 60), Level(7, 8.0), give_back)
        websocket.say('421["m",{}]')
        await wait_until(websocket.texts)

    assert len(given) == back


async def test_an_attachment_without_room_refuses_its_call() -> None:
    desk = Desk()
    async with joined(desk) as websocket:
        websocket.say(UPLOAD, too_many("No room.", retry_after_s=5), b"one", '422["m",{}]')
        await wait_until(lambda: len(websocket.texts()) == 2)

        assert statuses(websocket) == [429, 200]
        assert desk.payloads == [{}]
        assert desk.budget.total == 0


async def test_only_so_many_calls_are_open_whether_or_not_they_are_answered() -> None:
    desk = Desk()
    desk.may_end.clear()
    async with joined(desk) as websocket:
        websocket.say(*['42["m",{}]'] * MAX_OPEN_CALLS, '421["m",{}]')
        await wait_until(websocket.texts)

        assert statuses(websocket) == [429]
        desk.may_end.set()
        await wait_until(lambda: len(desk.payloads) == MAX_OPEN_CALLS)
        await asyncio.sleep(0.01)
        websocket.say('422["m",{}]')
        await wait_until(lambda: statuses(websocket) == [429, 200])


async def test_an_unread_answer_keeps_its_call_open_but_not_its_payload() -> None:
    desk = Desk()
    async with joined(desk) as websocket:
        websocket.writable.clear()
        websocket.say(*['421["m",{}]'] * MAX_OPEN_CALLS)
        await wait_until(lambda: len(desk.payloads) == MAX_OPEN_CALLS)
        websocket.say('421["m",{}]')
        await asyncio.sleep(0.05)

        assert statuses(websocket) == [200]
        assert desk.budget.total == len('421["m",{}]')  # of the one that is being refused
        websocket.writable.set()
        await wait_until(lambda: len(statuses(websocket)) == MAX_OPEN_CALLS + 1)
        assert 429 in statuses(websocket)


async def test_what_is_refused_counts_until_the_client_has_read_why() -> None:
    desk = Desk()
    async with joined(desk) as websocket:
        websocket.writable.clear()
        large = '421["m",{"text":"' + "x" * 1500 + '"}]'
        websocket.say(large)
        await wait_until(websocket.texts)

        assert statuses(websocket) == [413]
        assert desk.budget.total == len(large)


async def test_a_message_that_does_not_become_whole_ends_its_socket() -> None:
    desk = Desk()
    async with joined(desk) as websocket:
        websocket.receiving_s = BODY_TIMEOUT_S - 1
        await asyncio.sleep(10 * EVERY_S)
        early = websocket.codes()
        websocket.receiving_s = BODY_TIMEOUT_S + 1
        await wait_until(websocket.codes)

        assert (early, websocket.codes()) == ([], [1008])


async def test_a_call_whose_attachments_do_not_come_ends_its_socket() -> None:
    desk = Desk()
    async with joined(desk) as websocket:
        websocket.say(UPLOAD)
        await wait_until(websocket.incoming.empty)
        await asyncio.sleep(0)
        desk.clock.advance(BODY_TIMEOUT_S + 1)
        await wait_until(websocket.codes)

        assert websocket.codes() == [1008]


async def test_a_client_is_pinged_and_one_that_is_silent_is_cut_off() -> None:
    desk = Desk()
    async with joined(desk) as websocket:
        desk.clock.advance(PING_INTERVAL_S)
        await wait_until(websocket.texts)
        websocket.say("3")
        await wait_until(websocket.incoming.empty)
        await asyncio.sleep(0)
        desk.clock.advance(PING_TIMEOUT_S)
        await asyncio.sleep(10 * EVERY_S)
        early = websocket.aborted.is_set()
        desk.clock.advance(PING_INTERVAL_S + 1)
        await asyncio.wait_for(websocket.aborted.wait(), 20)

        assert websocket.texts()[0] == PING
        assert not early


async def test_a_client_is_not_silent_while_a_large_message_arrives() -> None:
    desk = Desk()
    async with joined(desk) as websocket:
        websocket.receiving_s = 1.0
        desk.clock.advance(PING_INTERVAL_S + PING_TIMEOUT_S + 1)
        await asyncio.sleep(10 * EVERY_S)

        assert not websocket.aborted.is_set()


@pytest.mark.parametrize(
    ("refusal", "codes"), [(None, []), (unauthorized("It was revoked."), [1008]), (Unavailable("away"), [])]
)
async def test_a_socket_ends_when_its_caller_would_be_rejected(refusal: Exception | None, codes: list[int]) -> None:
    desk = Desk()
    async with joined(desk) as websocket:
        desk.refusal = refusal
        desk.clock.advance(EVERY_S)
        await asyncio.sleep(20 * EVERY_S)

        assert websocket.codes() == codes
        if codes:
            ended, farewell = websocket.texts()
            assert (ended.startswith('42["session_end",{"status":401'), farewell) == (True, "41")


async def test_a_socket_ends_when_its_credential_has_expired() -> None:
    desk = Desk()
    desk.caller = Caller(Principal("t", "p", "u"), desk.clock.now().timestamp() + 5)
    async with joined(desk) as websocket:
        await asyncio.sleep(10 * EVERY_S)
        early = websocket.codes()
        desk.clock.advance(5)
        await wait_until(websocket.codes)

        assert (early, websocket.codes()) == ([], [1008])
        assert "The credential has expired." in websocket.texts()[0]


async def test_an_error_of_ours_is_answered_and_counted() -> None:
    desk = Desk()
    desk.outcome = cast(Any, RuntimeError("a bug"))
    async with joined(desk) as websocket:
        websocket.say('421["m",{}]')
        await wait_until(websocket.texts)

        assert statuses(websocket) == [500]
        assert "a bug" not in websocket.texts()[0]
