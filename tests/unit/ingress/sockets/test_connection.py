"""One socket between the server and the library."""

import asyncio

import pytest
from starlette.types import Message

from ingress.admission.metrics import IngressMetrics
from ingress.sockets.connection import Connection
from ingress.sockets.guard import Phase, SocketCaps, SocketGuard


class Wire:
    """Both ends of a WebSocket, and the line below it."""

    def __init__(self) -> None:
        self.incoming: asyncio.Queue[Message] = asyncio.Queue()
        self.sent: list[Message] = []
        self.reads = asyncio.Event()
        self.reads.set()
        self.allowed = 0
        self.aborted = asyncio.Event()

    async def send(self, message: Message) -> None:
        await self.reads.wait()
        self.sent.append(message)

    def allow(self, max_bytes: int) -> None:
        self.allowed = max_bytes

    def abort(self) -> None:
        self.aborted.set()

    def texts(self) -> list[str]:
        return [message["text"] for message in self.sent if message["type"] == "websocket.send"]

    def client_says(self, *frames: str) -> None:
        for frame in frames:
            self.incoming.put_nowait({"type": "websocket.receive", "text": frame})


def connect(*, joined: bool = True) -> tuple[Wire, Connection]:
    wire = Wire()
    guard = SocketGuard(SocketCaps(1000, 2, 10, frozenset({"m"})), lambda: 0.0)
    guard.phase = Phase.JOINED if joined else Phase.JOINING
    connection = Connection(
        wire.incoming.get, wire.send, line=wire, guard=guard, metrics=IngressMetrics(), max_bytes=5000
    )
    return wire, connection


async def test_the_library_gets_only_what_the_guard_lets_through() -> None:
    wire, connection = connect()
    wire.client_says('421["other"]', "40/x,", '422["m",{}]')

    message = await connection.receive()

    assert message["text"] == '422["m",{}]'
    answer, refused = wire.texts()
    assert answer.startswith('431[{"status":404')
    assert refused.startswith("44/x,")


async def test_a_malformed_packet_closes_the_socket_with_its_reason() -> None:
    wire, connection = connect()
    wire.client_says("nonsense")
    wire.incoming.put_nowait({"type": "websocket.disconnect", "code": 1002})

    message = await connection.receive()

    assert message["type"] == "websocket.disconnect"
    assert wire.sent[-1]["code"] == 1002
    assert wire.sent[-1]["reason"].startswith("Malformed packet")
    with pytest.raises(OSError, match="closed"):
        await connection.send_text("42[]")


async def test_the_session_info_follows_the_connection_and_messages_may_be_larger_now() -> None:
    wire, connection = connect(joined=False)
    connection.session_info = {"user_id": "u"}

    await connection.send({"type": "websocket.send", "text": '40{"sid":"s"}'})

    assert wire.texts() == ['40{"sid":"s"}', '42["session_info",{"user_id":"u"}]']
    assert connection.joined
    assert wire.allowed == 5000


async def test_a_refused_connection_is_closed_after_it_was_told() -> None:
    wire, connection = connect(joined=False)

    await connection.send({"type": "websocket.send", "text": '44{"message":"no"}'})

    assert wire.texts() == ['44{"message":"no"}']
    assert wire.sent[-1]["type"] == "websocket.close"


async def test_a_socket_is_quiet_when_its_calls_are_answered() -> None:
    wire, connection = connect()
    wire.client_says('421["m",{}]')
    await connection.receive()

    waiting = asyncio.create_task(connection.wait_quiet(30))
    await asyncio.sleep(0)
    connection.end_call(connection.begin_call())
    await asyncio.sleep(0)
    assert not waiting.done()
    await connection.send({"type": "websocket.send", "text": "431[{}]"})

    await asyncio.wait_for(waiting, 5)


async def test_a_session_that_is_over_is_told_why() -> None:
    wire, connection = connect()

    await connection.dismiss({"status": 401})

    assert wire.texts() == ['42["session_end",{"status":401}]', "41"]
    assert connection.closed


async def test_who_does_not_read_holds_up_its_own_events_and_is_cut_off_at_the_end() -> None:
    wire, connection = connect()
    wire.reads.clear()

    feeding = asyncio.create_task(connection.send_events(["42[1]", "42[2]"]))
    closing = asyncio.create_task(connection.close(1012, "bye"))
    await asyncio.wait_for(wire.aborted.wait(), 20)
    await closing

    assert wire.sent == []
    assert not feeding.done()
    feeding.cancel()
