"""The run's Unix socket: admission of connections, checks of their frames, and the forwarding of calls to the worker.

Whatever a program does wrong on the socket costs it the connection. At most `MAX_CONNECTIONS` are open and
`MAX_ACCEPTED` are ever accepted. A connection holds one unfinished frame, and only `MAX_IN_FLIGHT` of its calls wait
for the worker at a time.
"""

import asyncio
import hmac
import math
import socket
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Final, cast

from everturn.execution.framing import FrameDecoder, FrameError, FrameStream, encode_frame
from everturn.execution.messages import (
    GATEWAY_FRAME_BYTES,
    MAX_ARGUMENT_VALUES,
    ArgumentRule,
    CallRecord,
    Capability,
    GatewayCall,
    Hello,
    ToolGrant,
    ToolReply,
    Welcome,
    hash_arguments,
)
from everturn.execution.records import BadMessage, build_message, parse_message
from exec_supervisor.supervisor.listeners import load_peer_uid

MAX_CONNECTIONS: Final = 8
MAX_ACCEPTED: Final = 256
MAX_IN_FLIGHT: Final = 8
MAX_REFUSED_CALLS: Final = 100
HELLO_TIMEOUT_S: Final = 2.0
FRAME_TIMEOUT_S: Final = 5.0

ForwardCall = Callable[[GatewayCall], Awaitable[ToolReply]]


class Refused(Exception):
    """The gateway rejects this call."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


class Gateway:
    """Serves one run until it is cancelled. `records` and `refusals` (a count by code) are its statistics."""

    def __init__(
        self,
        capability: Capability,
        nonce: str,
        peer_uid: int,
        forward: ForwardCall,
        *,
        frame_timeout_s: float = FRAME_TIMEOUT_S,
    ) -> None:
        self._quota = Quota(capability)
        self._nonce = nonce
        self._peer_uid = peer_uid
        self._forward = forward
        self._frame_timeout_s = frame_timeout_s
        self._open = 0
        self._calls = 0
        self.records: list[CallRecord] = []
        self.refusals: Counter[str] = Counter()

    async def run(self, listener: socket.socket) -> None:
        """Accept connections until the run ends; after too many the listener is closed and open connections
        continue."""
        loop = asyncio.get_running_loop()
        async with asyncio.TaskGroup() as connections:
            with listener:
                for _ in range(MAX_ACCEPTED):
                    peer, _ = await loop.sock_accept(listener)
                    if self._may_connect(peer):
                        self._open += 1
                        connections.create_task(self._serve(peer))
                    else:
                        peer.close()
            self.refusals["too_many_connections"] += 1

    def _may_connect(self, peer: socket.socket) -> bool:
        uid = load_peer_uid(peer)
        code = "wrong_uid" if uid != self._peer_uid else "too_many_connections" if self._open >= MAX_CONNECTIONS else ""
        if code:
            self.refusals[code] += 1
        return not code

    async def _serve(self, peer: socket.socket) -> None:
        reader, writer = await asyncio.open_unix_connection(sock=peer, limit=GATEWAY_FRAME_BYTES)
        stream = FrameStream(reader, writer, FrameDecoder(GATEWAY_FRAME_BYTES))
        try:
            async with asyncio.timeout(HELLO_TIMEOUT_S):
                await self._greet(stream)
            async with asyncio.TaskGroup() as calls:
                await self._serve_calls(stream, calls)
        except* (FrameError, BadMessage, TimeoutError, OSError, Refused) as broken:
            self.refusals[_code_of(broken)] += 1
        finally:
            self._open -= 1
            writer.transport.abort()

    async def _greet(self, stream: FrameStream) -> None:
        frame = await stream.receive()
        if not isinstance(frame, dict):
            raise ConnectionResetError
        hello = parse_message(frame, Hello)
        if not hmac.compare_digest(hello.nonce.encode("utf-8", "surrogatepass"), self._nonce.encode()):
            raise Refused("wrong_nonce", "this is another run's gateway")
        await stream.send(build_message(Welcome()))

    async def _serve_calls(self, stream: FrameStream, calls: asyncio.TaskGroup) -> None:
        in_flight = asyncio.Semaphore(MAX_IN_FLIGHT)
        refused = 0
        while (call := await self._receive_call(stream)) is not None:
            try:
                self._quota.count_bytes(_size_of(call))
                grant = self._quota.count_call(call)
            except Refused as refusal:
                refused += 1
                await self._refuse(stream, call, refusal)
                if refused >= MAX_REFUSED_CALLS:
                    raise Refused("too_many_refused_calls", "") from refusal
            else:
                await in_flight.acquire()
                calls.create_task(self._answer(stream, call, grant, in_flight))

    async def _refuse(self, stream: FrameStream, call: GatewayCall, refusal: Refused) -> None:
        self.refusals[refusal.code] += 1
        await self._send_reply(stream, ToolReply(call.id, False, None, refusal.code, refusal.message))

    async def _answer(
        self, stream: FrameStream, call: GatewayCall, grant: ToolGrant, in_flight: asyncio.Semaphore
    ) -> None:
        try:
            self._calls += 1
            number, started = self._calls, time.monotonic()
            reply = await self._call_worker(GatewayCall(number, call.tool_id, call.arguments), grant.timeout_s)
            size = _size_of(call) + len(encode_frame(build_message(reply)))
            took_ms = round((time.monotonic() - started) * 1000)
            digest = hash_arguments(call.arguments)
            self.records.append(
                CallRecord(number, call.tool_id, digest, reply.ok, reply.error_code, took_ms, size),
            )
            await self._send_reply(
                stream, ToolReply(call.id, reply.ok, reply.value, reply.error_code, reply.error_message)
            )
        finally:
            in_flight.release()

    async def _call_worker(self, call: GatewayCall, timeout_s: float) -> ToolReply:
        """Return the worker's reply, or an error of the gateway if that is late, too big for a frame or over the
        quota."""
        try:
            async with asyncio.timeout(timeout_s):
                reply = await self._forward(call)
            self._quota.count_bytes(len(encode_frame(build_message(reply), GATEWAY_FRAME_BYTES)))
        except TimeoutError:
            return ToolReply(call.id, False, None, "timeout", f"{call.tool_id} took longer than {timeout_s:g} s")
        except FrameError as error:
            return ToolReply(call.id, False, None, "too_large", f"the result can't be sent: {error}")
        except Refused as refusal:
            self.refusals[refusal.code] += 1
            return ToolReply(call.id, False, None, refusal.code, refusal.message)
        return reply

    async def _receive_call(self, stream: FrameStream) -> GatewayCall | None:
        """Return the next call; None at the end. A peer can be silent between frames; a begun frame has a time
        limit."""
        frame = stream.try_receive()
        if frame is None and not stream.mid_frame and not await stream.read_more():
            return None
        async with asyncio.timeout(self._frame_timeout_s):
            frame = await stream.receive() if frame is None else frame
        return parse_message(frame, GatewayCall) if isinstance(frame, dict) else None

    async def _send_reply(self, stream: FrameStream, reply: ToolReply) -> None:
        """Send a reply. A program that doesn't read its answers loses the connection (TimeoutError)."""
        async with asyncio.timeout(self._frame_timeout_s):
            await stream.send(build_message(reply), GATEWAY_FRAME_BYTES)


def _size_of(call: GatewayCall) -> int:
    return len(encode_frame(build_message(call), 2 * GATEWAY_FRAME_BYTES))


def _code_of(broken: BaseExceptionGroup[Exception]) -> str:
    match broken.exceptions[0]:
        case BaseExceptionGroup() as inner:
            return _code_of(inner)
        case FrameError(code=code) | Refused(code=code):
            return code
        case BadMessage():
            return "bad_message"
        case TimeoutError():
            return "too_slow"
        case _:
            return "connection_lost"


class Quota:
    """Counts one run's calls, bytes and time. Only the gateway changes it, from one task at a time."""

    def __init__(self, capability: Capability, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._deadline = math.inf if capability.deadline_s is None else monotonic() + capability.deadline_s
        self._grants = {grant.tool_id: grant for grant in capability.grants}
        self._calls_of: dict[str, int] = {}
        self._calls_left = capability.max_calls
        self._bytes_left = capability.max_bytes

    def count_call(self, call: GatewayCall) -> ToolGrant:
        """Count an allowed call and return its grant. Raises Refused.

        Codes: not_allowed, bad_arguments, quota_time, quota_calls.
        """
        grant = self._grants.get(call.tool_id)
        if grant is None:
            raise Refused("not_allowed", f"{call.tool_id[:80]!r} is not a tool of this run")
        check_arguments(grant, call.arguments)
        if self._monotonic() >= self._deadline:
            raise Refused("quota_time", "the time limit for tool calls of this run has passed")
        used = self._calls_of.get(call.tool_id, 0)
        if self._calls_left <= 0 or (grant.max_calls is not None and used >= grant.max_calls):
            raise Refused("quota_calls", f"this run has no calls of {call.tool_id} left")
        self._calls_of[call.tool_id] = used + 1
        self._calls_left -= 1
        return grant

    def count_bytes(self, count: int) -> None:
        """Count bytes of requests and replies. Raises Refused quota_bytes, and from then on always."""
        self._bytes_left -= count
        if self._bytes_left < 0:
            self._bytes_left = -1
            raise Refused("quota_bytes", "this run has reached the byte limit of its tool calls")


def check_arguments(grant: ToolGrant, arguments: dict[str, object]) -> None:
    """Raise Refused bad_arguments if an argument has no rule or breaks its rule, or if there are too many values.

    A frame bounds the bytes. The worker walks through the values several times in a loop that it shares with other
    turns, and 300,000 small ones take it half a second.
    """
    if not _has_at_most(MAX_ARGUMENT_VALUES, arguments):
        raise Refused("bad_arguments", f"{grant.tool_id}: the arguments contain more than {MAX_ARGUMENT_VALUES} values")
    if grant.arguments is None:
        return
    rules = {rule.name: rule for rule in grant.arguments}
    for name, value in arguments.items():
        rule = rules.get(name)
        if rule is None:
            raise Refused("bad_arguments", f"{grant.tool_id} does not accept the argument {name[:80]!r} in this run")
        if problem := find_problem(rule, value):
            raise Refused("bad_arguments", f"{grant.tool_id}: {name} {problem}")


def find_problem(rule: ArgumentRule, value: object) -> str | None:
    """Why a value breaks its rule, or None."""
    if rule.one_of is not None and value not in rule.one_of:
        return f"must be one of {', '.join(rule.one_of)}"
    if rule.max_chars is not None and not (isinstance(value, str) and len(value) <= rule.max_chars):
        return f"must be text of at most {rule.max_chars} characters"
    if rule.max_items is not None and _count_items(value) > rule.max_items:
        return f"must be a list of at most {rule.max_items} items"
    if rule.max_item_chars is not None and _longest_item(value) > rule.max_item_chars:
        return f"must be a list of strings of at most {rule.max_item_chars} characters"
    if rule.maximum is not None and not (isinstance(value, (int, float)) and value <= rule.maximum):
        return f"must be a number of at most {rule.maximum:g}"
    return None


def _has_at_most(count: int, value: object) -> bool:
    """Whether a value has at most `count` parts, including each list and object."""
    waiting = [value]
    while waiting:
        part = waiting.pop()
        count -= 1
        if isinstance(part, dict):
            waiting += list(cast("dict[str, object]", part).values())
        elif isinstance(part, list):
            waiting += cast("list[object]", part)
        if count < len(waiting):
            return False
    return True


def _longest_item(value: object) -> float:
    """Characters of the longest text in a list; infinite if it contains anything else."""
    items = cast("list[object]", value) if isinstance(value, list) else [None]
    return max((len(item) if isinstance(item, str) else math.inf for item in items), default=0)


def _count_items(value: object) -> float:
    """The number of items of a list; infinite for anything else."""
    return len(cast("list[object]", value)) if isinstance(value, list) else math.inf
