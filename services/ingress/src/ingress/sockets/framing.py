"""Parsing of what clients can send over a socket: Engine.IO 4 and Socket.IO 5 packets, without I/O.

Everything is checked here before the library sees it, because the library trusts its input.
"""

import re
from dataclasses import dataclass, field
from functools import partial
from typing import Any, cast

from everturn.core.errors import EverturnError
from ingress.admission.strict_json import BadJson, parse_strict, run_parser

MAX_ACK_ID = 2**53 - 1
"""The largest integer that JavaScript represents exactly."""
MAX_NAMESPACE_CHARS = 100
MAX_HEAD_CHARS = 200
"""Upper bound for the head of a call: its kind, number of attachments, namespace, number and name."""
_NAME = re.compile(r'\["([A-Za-z0-9_.:-]{1,100})"')
_HEAD = re.compile(r"(?:(?P<files>[0-9]{1,9})-)?(?:(?P<namespace>/[^,]*)(?:,|$))?(?P<id>[0-9]{1,16})?", re.ASCII)


class BadFrame(EverturnError):
    """The frame is no packet that a client may send."""


@dataclass(frozen=True, slots=True)
class Pong:
    """The client's answer to a ping."""


@dataclass(frozen=True, slots=True)
class Leave:
    """The client closes its session."""


@dataclass(frozen=True, slots=True)
class Join:
    """The client asks to join a namespace and identifies itself."""

    namespace: str
    auth: object


@dataclass(frozen=True, slots=True)
class Call:
    """An event; `ack` is the number with which the client identifies the answer."""

    name: str
    ack: int | None
    attachments: int
    data: list[object] = field(default_factory=list[object], compare=False, repr=False)
    """The event as sent: its name, followed by its arguments."""


@dataclass(frozen=True, slots=True)
class BadJoin:
    """A `Join` with invalid data."""

    namespace: str
    why: str


@dataclass(frozen=True, slots=True)
class BadCall:
    """An event with invalid data, or data that does not match its head."""

    why: str


@dataclass(frozen=True, slots=True)
class Opening:
    """The head of a call. `name` is None where it can only be read together with the data."""

    name: str | None
    ack: int | None
    attachments: int


Packet = Pong | Leave | Join | Call | BadJoin | BadCall


class _BadData(EverturnError):
    """The data of a packet can't be read."""


def try_read_opening(text: str) -> Opening | None:
    """Read the head of a call before its data, which may be megabytes; None if the frame is not a call."""
    start = text[:MAX_HEAD_CHARS]
    head = _HEAD.match(start, 2) if start.startswith(("42", "45")) else None
    if head is None:
        return None
    name = _NAME.match(start, head.end())
    ack = int(head["id"]) if head["id"] is not None else None
    return Opening(name[1] if name else None, ack, int(head["files"] or 0))


async def load_packet(text: str) -> Packet:
    """Like `parse_packet`, but a large frame is parsed off the event loop, in the threads for large bodies."""
    return await run_parser(partial(parse_packet, text), len(text))


def parse_packet(text: str) -> Packet:
    """Parse one text frame. Raises BadFrame; invalid data become a packet of their own, because they get an answer."""
    match text[:1]:
        case "3":
            if text != "3":
                # Pings carry no data, and the library would parse any data in a pong.
                raise BadFrame("a pong has no data")
            return Pong()
        case "1":
            return Leave()
        case "4":
            return _parse_message(text[1:])
        case _:
            raise BadFrame("it is not a packet that a client may send")


def _parse_message(text: str) -> Packet:
    kind = text[:1]
    head = _HEAD.match(text, 1)
    if head is None:
        raise BadFrame("it has no head")
    namespace = (head["namespace"] or "/").partition("?")[0]
    if len(namespace) > MAX_NAMESPACE_CHARS:
        raise BadFrame("its namespace is too long")
    rest = text[head.end() :]
    match kind:
        case "0":
            return _parse_join(namespace, rest)
        case "1":
            return Leave()
        case "2" | "5":
            _check_namespace(namespace)
            return _parse_call(head, rest, binary=kind == "5")
        case _:
            raise BadFrame("it is not a packet that a client may send")


def _check_namespace(namespace: str) -> None:
    if namespace != "/":
        raise BadFrame("the only namespace is /")


def _parse_join(namespace: str, rest: str) -> Join | BadJoin:
    try:
        return Join(namespace, _parse_data(rest) if rest else None)
    except _BadData as error:
        return BadJoin(namespace, error.detail)


def _parse_call(head: re.Match[str], rest: str, *, binary: bool) -> Call | BadCall:
    attachments = int(head["files"] or 0)
    if (head["files"] is not None) != binary:
        raise BadFrame("only a binary event counts attachments")
    if binary and not attachments:
        # The library would treat the next frames as the attachments that it waits for.
        raise BadFrame("a binary event has attachments")
    ack = int(head["id"]) if head["id"] is not None else None
    if ack is not None and ack > MAX_ACK_ID:
        raise BadFrame("its number is too large")
    try:
        data = _parse_event(rest, attachments)
        return Call(str(data[0]), ack, attachments, data)
    except _BadData as error:
        return BadCall(error.detail)


def _parse_event(rest: str, attachments: int) -> list[object]:
    data = _parse_data(rest)
    parts = cast(list[object], data) if isinstance(data, list) else []
    if not parts or not isinstance(parts[0], str):
        raise _BadData("An event must be a list that begins with its name.")
    _check_placeholders(parts, attachments)
    return parts


def _parse_data(text: str) -> Any:
    try:
        return parse_strict(text.encode("utf-8", "surrogatepass"))
    except BadJson as error:
        raise _BadData(str(error)) from error


def _check_placeholders(data: list[object], attachments: int) -> None:
    """Check that each attachment has exactly one placeholder. Otherwise one upload could be copied a thousand times."""
    numbers = sorted(_find_placeholders(data))
    if numbers != list(range(attachments)):
        raise _BadData("The placeholders do not match the attachments.")


def _find_placeholders(value: object) -> list[int]:
    match value:
        case dict():
            fields = cast(dict[str, object], value)
            if fields.get("_placeholder"):
                return [_read_number(fields.get("num"))]
            return [number for item in fields.values() for number in _find_placeholders(item)]
        case list():
            return [number for item in cast(list[object], value) for number in _find_placeholders(item)]
        case _:
            return []


def _read_number(number: object) -> int:
    if type(number) is not int or number < 0:
        raise _BadData("A placeholder has no number.")
    return number
