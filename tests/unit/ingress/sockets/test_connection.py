"""One socket between the server and the library."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from starlette.types import Message

from everturn.core.identity import Principal
from everturn.limits.token_buckets import Level, Limit
from ingress.admission.limits import BODY_TIMEOUT_S, BodyBudget, BodyHold, Drawn
from ingress.admission.metrics import IngressMetrics
from ingress.auth.callers import Caller
from ingress.errors import ProblemError, absent, too_many
from ingress.sockets.connection import Admitted, Connection
from ingress.sockets.guard import MAX_OPEN_CALLS, Phase, SocketCaps, SocketGuard
from ingress.sockets.websocket import COUNTED_KEY, REFUSAL_KEY
from ingress.stream.recheck import Recheck


class Wire:
    """Both ends of a WebSocket, and the line below it."""

    def __init__(self) -> None:
        self.incoming: asyncio.Queue[Message] = asyncio.Queue()
        self.sent: list[Message] = []
        self.reads = asyncio.Event()
        self.reads.set()
        self.takes = asyncio.Event()
        """Cleared: what is sent stays in the server's buffer."""
        self.takes.set()
        self.allowed = 0
        self.begun_at: float | None = None
        self.aborted = asyncio.Event()

    async def send(self, message: Message) -> None:
        await self.reads.wait()
        self.sent.append(message)

    def allow(self, max_bytes: int, hold: BodyHold) -> None:
        self.allowed = max_bytes
        self.hold = hold

    async def wait_sent(self) -> None:
        await self.takes.wait()

    def abort(self) -> None:
        self.aborted.set()

    def texts(self) -> list[str]:
        return [message["text"] for message in self.sent if message["type"] == "websocket.send"]

    def client_says(self, *frames: str | bytes, hold: BodyHold | None = None) -> None:
        """`hold` counts the frames, as the line does."""
        for frame in frames:
            message: Message = {"type": "websocket.receive", "text" if isinstance(frame, str) else "bytes": frame}
            if hold is not None:
                hold.grow(len(frame))
                message[COUNTED_KEY] = len(frame)
            self.incoming.put_nowait(message)


BUDGET = BodyBudget(max_bytes=10_000, max_bytes_per_user=10_000, metrics=IngressMetrics())


async def let_in(caller: Caller) -> None:
    return None


STANDING = Recheck(let_in, every_s=60, monotonic=lambda: 0.0).begin(Caller(Principal("t", "p", "u")))


async def draw_none(name: str | None) -> ProblemError | None:
    return None


def admit(draw: Callable[[str | None], Awaitable[Drawn | ProblemError | None]] = draw_none) -> Admitted:
    caller = Caller(Principal("t", "p", "u"))
    return Admitted(caller, STANDING, {"user_id": "u"}, BUDGET.open(caller.principal), draw)


def connect(*, phase: Phase = Phase.JOINED, send_timeout_s: float = 60) -> tuple[Wire, Connection]:
    wire = Wire()
    guard = SocketGuard(SocketCaps(1000, 1000, 2, 10, frozenset({"m"})), lambda: 0.0)
    guard.phase = phase
    connection = Connection(
        wire.incoming.get,
        wire.send,
        line=wire,
        guard=guard,
        metrics=IngressMetrics(),
        max_bytes=5000,
        send_timeout_s=send_timeout_s,
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


async def test_a_client_that_takes_nothing_for_the_time_that_is_set_is_cut_off() -> None:
    wire, connection = connect(send_timeout_s=0.01)
    wire.reads.clear()

    async with asyncio.timeout(10):
        with pytest.raises(ConnectionAbortedError, match="reads no data"):
            await connection.send_text("42[]")

    assert wire.aborted.is_set()


async def test_what_is_sent_counts_as_sent_once_the_client_has_taken_it() -> None:
    wire, connection = connect()
    wire.takes.clear()

    sending = asyncio.create_task(connection.send_text("42[]"))
    await asyncio.wait([sending], timeout=0.05)
    early = sending.done()
    wire.takes.set()
    await asyncio.wait_for(sending, 10)

    assert not early


async def test_a_join_that_can_not_be_read_is_refused_and_the_next_one_reaches_the_library() -> None:
    wire, connection = connect(phase=Phase.NEW)
    wire.client_says("40{", '40{"token":"t"}')

    message = await connection.receive()

    (refused,) = wire.texts()
    assert refused.startswith('44{"message"')
    assert message["text"] == '40{"token":"t"}'


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
    wire, connection = connect(phase=Phase.JOINING)
    connection.admitted = admit()

    await connection.send({"type": "websocket.send", "text": '40{"sid":"s"}'})

    assert wire.texts() == ['40{"sid":"s"}', '42["session_info",{"user_id":"u"}]']
    assert connection.joined
    assert wire.allowed == 5000
    assert wire.hold is connection.admitted.hold


async def test_a_refused_connection_is_closed_after_it_was_told() -> None:
    wire, connection = connect(phase=Phase.JOINING)

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


async def test_a_call_that_nobody_waits_for_is_open_until_it_has_run() -> None:
    wire, connection = connect()
    for _ in range(MAX_OPEN_CALLS):
        wire.client_says('42["m",{}]')
        await connection.receive()
    wire.client_says(*['421["m",{}]'] * 2, "3")

    connection.end_call(connection.begin_call())
    passed = await connection.receive()
    await connection.receive()

    assert passed["text"] == '421["m",{}]'
    (refused,) = wire.texts()
    assert '"status":429' in refused


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


UPLOAD = '452-1["m",{"_placeholder":true,"num":0},{"_placeholder":true,"num":1}]'


async def test_the_bytes_of_a_call_count_until_it_has_ended() -> None:
    wire, connection = connect()
    connection.admitted = admit()
    hold = connection.admitted.hold
    wire.client_says("3", '42["other"]', UPLOAD, bytes(300), bytes(300), hold=hold)

    frames = [await connection.receive() for _ in range(4)]
    held = connection.begin_call()
    while_it_runs = BUDGET.total
    connection.end_call(held)

    assert [frame.get("text", b"")[:3] for frame in frames] == ["3", "452", b"", b""]
    assert while_it_runs == len(UPLOAD) + 600
    assert BUDGET.total == 0


async def test_a_call_that_is_not_whole_does_not_reach_the_library_and_ends_with_the_socket() -> None:
    wire, connection = connect()
    connection.admitted = admit()
    wire.client_says(UPLOAD, bytes(300), hold=connection.admitted.hold)
    wire.incoming.put_nowait({"type": "websocket.disconnect", "code": 1001})

    message = await connection.receive()

    assert message["type"] == "websocket.disconnect"
    assert BUDGET.total == 0


async def test_an_attachment_without_room_refuses_its_call_and_gives_back_what_came_of_it() -> None:
    wire, connection = connect()
    connection.admitted = admit()
    wire.client_says(UPLOAD, bytes(300), hold=connection.admitted.hold)
    no_room = too_many("No room.", retry_after_s=5)
    wire.incoming.put_nowait({"type": "websocket.receive", "bytes": b"", COUNTED_KEY: 0, REFUSAL_KEY: no_room})
    wire.client_says("3")

    message = await connection.receive()

    assert message["text"] == "3"
    (answer,) = wire.texts()
    assert answer.startswith('431[{"status":429')
    assert BUDGET.total == 0


async def test_a_call_beyond_the_rate_is_answered_before_its_data_are_read() -> None:
    drawn: list[str | None] = []

    async def draw(name: str | None) -> ProblemError | None:
        drawn.append(name)
        return too_many("Too many.", retry_after_s=7)

    wire, connection = connect()
    connection.admitted = admit(draw)
    wire.client_says('421["m",{"this is": no JSON', "3", hold=connection.admitted.hold)

    message = await connection.receive()

    assert message["text"] == "3"
    (answer,) = wire.texts()
    assert '"status":429' in answer
    assert '"retry_after_s":7' in answer
    assert drawn == ["m"]
    assert BUDGET.total == 0


async def test_a_message_that_does_not_become_whole_is_late_in_the_end() -> None:
    wire, connection = connect()
    now = asyncio.get_running_loop().time()

    assert not connection.is_late(now + 2 * BODY_TIMEOUT_S)
    wire.begun_at = now

    assert not connection.is_late(now + BODY_TIMEOUT_S - 1)
    assert connection.is_late(now + BODY_TIMEOUT_S + 1)


class Purse:
    """Draws a token for each call, and gets some back."""

    def __init__(self) -> None:
        self.back = 0

    async def draw(self, name: str | None) -> Drawn:
        return Drawn("writes", Limit(8, 60), Level(7, 8.0), self.give_back)

    async def give_back(self) -> Level:
        self.back += 1
        return Level(8, 0.0)


@pytest.mark.parametrize(("problem", "back"), [(too_many("Full.", retry_after_s=5), 1), (absent(), 0)])
async def test_the_token_of_a_call_comes_back_when_it_is_to_come_again_later(problem: ProblemError, back: int) -> None:
    (wire, connection), purse = connect(), Purse()
    connection.admitted = admit(purse.draw)
    wire.client_says('421["m",{}]', '422["m",{}]')
    for _ in range(2):
        await connection.receive()

    first, second = connection.begin_call(), connection.begin_call()
    for _ in range(2):
        await first.settle(problem)

    assert purse.back == back
    connection.end_call(first)
    connection.end_call(second)


async def test_the_token_of_a_call_without_room_for_its_attachment_comes_back() -> None:
    (wire, connection), purse = connect(), Purse()
    connection.admitted = admit(purse.draw)
    wire.client_says(UPLOAD, bytes(300), hold=connection.admitted.hold)
    no_room = too_many("No room.", retry_after_s=5)
    wire.incoming.put_nowait({"type": "websocket.receive", "bytes": b"", COUNTED_KEY: 0, REFUSAL_KEY: no_room})
    wire.client_says("3")

    await connection.receive()

    assert purse.back == 1
