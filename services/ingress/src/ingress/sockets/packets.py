"""The packets of Socket.IO 5 on a WebSocket, without I/O: what a client may send, and what it is sent.

python-socketio reads and writes them; what is accepted is decided here, because it takes packets of any size. The first
digit of a frame is the type in Engine.IO 4: `1` closes, `2` pings, `3` answers a ping, `4` is a packet of Socket.IO.
`451-7["chat_message",{"files":[{"data":{"_placeholder":true,"num":0}}]}]` is a binary event with one attachment, the
number 7 for its answer, and JSON; one binary message follows it.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from functools import partial
from typing import Any, ClassVar, cast

import orjson
from socketio.packet import ACK, BINARY_EVENT, CONNECT, CONNECT_ERROR, DISCONNECT, EVENT, Packet

from everturn.core.errors import EverturnError
from ingress.admission.strict_json import BadJson, parse_strict, run_parser
from ingress.errors import ProblemError, malformed
from ingress.stream.frames import SentEvent

PING_INTERVAL_S = 25
PING_TIMEOUT_S = 20
PING = "2"
FAREWELL = f"4{DISCONNECT}"
"""Ends the session; official clients don't reconnect after it."""
MAX_ACK_ID = 2**53 - 1
"""The largest integer that JavaScript represents exactly."""
MAX_NAMESPACE_CHARS = 100
MAX_HEAD_CHARS = 256
"""Upper bound for the head of a packet: its types, number of attachments, namespace, number and name."""
_NAME = re.compile(r'\["([A-Za-z0-9_.:-]{1,100})"')


class BadPacket(EverturnError):
    """The frame is not a packet that a client may send."""


class Kind(Enum):
    """What a client can send."""

    PONG = auto()
    LEAVE = auto()
    JOIN = auto()
    CALL = auto()


@dataclass(frozen=True, slots=True)
class Head:
    """A packet before its JSON, which begins at character `at` and may be megabytes long, is read.

    `ack` is the number with which the client identifies the answer. `name` is the event's; None where it can only be
    read together with the JSON.
    """

    kind: Kind
    namespace: str = "/"
    ack: int | None = None
    attachments: int = 0
    name: str | None = None
    at: int = 0


@dataclass(frozen=True, slots=True)
class Event:
    """An event of a client. `places` are the containers, keys and numbers of its attachments."""

    name: str
    arguments: list[Any]
    places: list[tuple[Any, Any, int]]

    def fill(self, attachments: Sequence[bytes]) -> None:
        """Put the attachments into their places."""
        for container, key, number in self.places:
            container[key] = attachments[number]


class _Json:
    """Writes JSON; leaves what is read as text, because it is parsed later and more strictly."""

    @staticmethod
    def dumps(value: Any, **_: Any) -> str:
        return orjson.dumps(value).decode()

    @staticmethod
    def loads(text: str) -> str:
        return text


class _Packet(Packet):
    json: ClassVar[Any] = _Json
    packet_type: int
    namespace: str | None
    id: int | None
    data: Any
    attachment_count: int


def parse_head(text: str) -> Head:
    """Parse the head of a text frame. Raises BadPacket."""
    if text == "3":
        return Head(Kind.PONG)  # without data, because pings have none
    if text.startswith(("1", FAREWELL)):
        return Head(Kind.LEAVE)
    if not text.startswith("4") or text == "4":
        raise BadPacket("it is not a packet that a client may send")
    start = text[1:MAX_HEAD_CHARS]
    try:
        packet = _Packet(encoded_packet=start)
    except ValueError as error:
        raise BadPacket("its header can't be read") from error
    at = 1 + len(start) - len(packet.data or "")
    if not text[:at].isascii():
        raise BadPacket("its header has non-ASCII characters")  # the library takes any digits for a number
    namespace = packet.namespace or "/"
    if len(namespace) > MAX_NAMESPACE_CHARS:
        raise BadPacket("its namespace is too long")
    if packet.packet_type == CONNECT:
        return Head(Kind.JOIN, namespace, at=at)
    if packet.packet_type not in (EVENT, BINARY_EVENT):
        raise BadPacket("it is not a packet that a client may send")
    if namespace != "/":
        raise BadPacket("the only namespace is /")
    if (packet.packet_type == BINARY_EVENT) != (packet.attachment_count > 0):
        raise BadPacket("only a binary event has attachments")
    if packet.id is not None and packet.id > MAX_ACK_ID:
        raise BadPacket("its number is too large")
    name = _NAME.match(start, at - 1)
    return Head(Kind.CALL, "/", packet.id, packet.attachment_count, name[1] if name else None, at)


def parse_join(text: str, head: Head) -> Any:
    """The data with which a client connects; None for none. Raises a 400 problem."""
    return _parse_json(text[head.at :]) if len(text) > head.at else None


async def load_event(text: str, head: Head) -> Event:
    """Parse the JSON of a call, off the event loop if it is large. Raises a 400 problem."""
    return await run_parser(partial(_parse_event, text, head), len(text))


def _parse_event(text: str, head: Head) -> Event:
    data = _parse_json(text[head.at :])
    if not isinstance(data, list) or not data or not isinstance(data[0], str):
        raise malformed("An event must be a list that begins with its name.")
    name, *arguments = cast(list[Any], data)
    places = list(_find_places(arguments))
    # Otherwise one upload could be copied a thousand times.
    if sorted(number for _, _, number in places) != list(range(head.attachments)):
        raise malformed("The placeholders do not match the attachments.")
    return Event(name, arguments, places)


def _parse_json(text: str) -> Any:
    try:
        return parse_strict(text.encode("utf-8", "surrogatepass"))
    except BadJson as error:
        raise malformed(error.detail) from error


def _find_places(container: Any) -> Iterator[tuple[Any, Any, int]]:
    """The places of attachments at any depth, which the parser has bounded."""
    items = cast(dict[Any, Any], container).items() if isinstance(container, dict) else enumerate(container)
    for key, value in cast(Iterable[tuple[Any, Any]], items):
        if isinstance(value, dict) and cast(dict[str, Any], value).get("_placeholder"):
            number = cast(dict[str, Any], value).get("num")
            if type(number) is not int:
                raise malformed("A placeholder has no number.")
            yield container, key, number
        elif isinstance(value, dict | list):
            yield from _find_places(value)


def render_open(session_id: str, max_bytes: int) -> str:
    """The first frame that a client gets."""
    times = {"pingInterval": PING_INTERVAL_S * 1000, "pingTimeout": PING_TIMEOUT_S * 1000}
    return "0" + _Json.dumps({"sid": session_id, "upgrades": [], **times, "maxPayload": max_bytes})


def render_joined(session_id: str) -> str:
    """The client's request to join was accepted."""
    return _render(CONNECT, {"sid": session_id})


def render_refused_join(namespace: str, refusal: ProblemError) -> str:
    """A refused request to join; clients get its data in `connect_error`."""
    return _render(CONNECT_ERROR, {"message": refusal.detail, "data": build_problem(refusal)}, namespace=namespace)


def render_event(event: SentEvent) -> str:
    """An event of a stream; its envelope has the same bytes as over SSE."""
    return f'4{EVENT}["{event.name}",{event.payload.decode()}]'


def render_own(name: str, body: Any) -> str:
    """An event of the session."""
    return _render(EVENT, [name, body])


def render_answer(ack: int, status: int, body: Any) -> str:
    """The answer to a call: the status and body that REST would return."""
    return _render(ACK, [{"status": status, "body": body}], ack=ack)


def build_refusal(refusal: ProblemError) -> dict[str, Any]:
    """The answer to a refused call."""
    return {"status": refusal.answer.status, "body": build_problem(refusal)}


def build_problem(refusal: ProblemError) -> dict[str, Any]:
    """The problem; has `retry_after_s` when REST would send Retry-After."""
    retry_after = (refusal.headers or {}).get("Retry-After", "")
    return {**refusal.build_body(), **({"retry_after_s": int(retry_after)} if retry_after.isdigit() else {})}


def _render(kind: int, data: Any, *, namespace: str = "/", ack: int | None = None) -> str:
    packet = _Packet(kind, data, namespace=namespace, id=ack, binary=False)
    return "4" + cast(str, packet.encode())
