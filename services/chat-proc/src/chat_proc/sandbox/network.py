"""The network of programs: the worker opens their connections, to hosts that their profile allows and nothing else.

What a sandbox asks for is untrusted. The name is compared with the profile of the run, as this worker read it, every
address that it resolves to is checked, and the connection goes to a checked address. TLS is between program and host.
"""

import asyncio
import contextlib
import socket
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final, Literal

import structlog

from chat_proc.sandbox.port import ConnectionRecord, ServeConnection
from everturn.core.cancellation import end_tasks
from everturn.core.errors import EverturnError, Invalid
from everturn.core.ids import TurnId
from everturn.core.metrics import PROGRAM_CONNECTIONS
from everturn.execution.destinations import MODEL_HOST, MODEL_PORT, Destination, normalize_host, parse_destination
from everturn.execution.messages import (
    ALLOWED_HOSTS_ONLY,
    MAX_OPENED_STREAMS,
    MAX_STREAMS,
    MIB,
    OpenStream,
    Posture,
    StreamMessage,
    StreamOpened,
)
from everturn.execution.profiles import Profiles
from everturn.execution.records import BadMessage
from everturn.execution.streams import Direction, Relay, SendMessage, abort

_log = structlog.get_logger(__name__)

_Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
FindAddresses = Callable[[str, int, TurnId], Awaitable[Sequence[str]]]
"""The addresses of a host, all of them checked. Raises Invalid if one is not public, Unavailable if there is none."""

Outcome = Literal["opened", "not_allowed", "not_public", "unreachable", "over_limit"]
_OTHERS: Final = "(other hosts)"
_MAX_NAMED: Final = 20
_MAX_SHOWN_HOST: Final = 100
_OPENING_COST_BYTES: Final = 64 << 10
"""To open a connection takes the event loop as long as to move so many bytes."""


@dataclass(frozen=True, slots=True)
class NetworkLimits:
    """What one run may use, and `bytes_per_s` for all runs of a worker: each megabyte takes its event loop 4 ms. Small
    frames and new connections count as the bytes that take it as long.

    `idle_s` is how long a connection can be silent. `recorded` destinations of a run have entries of their own.
    Connections to the run's model server count only among those `at_once`: it has limits of its own.
    """

    at_once: int = MAX_STREAMS
    connections: int = 512
    received_bytes: int = 1024 * MIB
    sent_bytes: int = 64 * MIB
    connect_s: float = 10.0
    idle_s: float = 120.0
    bytes_per_s: int = 32 * MIB
    recorded: int = 50


class Pace:
    """Delays those who wait for it, so that together they have at most this many bytes in a second."""

    def __init__(self, bytes_per_s: int) -> None:
        self._bytes_per_s = bytes_per_s
        self._free_at_s = 0.0

    async def wait(self, cost: int) -> None:
        """`cost` is in bytes."""
        now_s = asyncio.get_running_loop().time()
        start_s = max(now_s, self._free_at_s)
        self._free_at_s = start_s + cost / self._bytes_per_s
        await asyncio.sleep(start_s - now_s)


class NetworkAccess:
    """The networks of all runs of one worker. `profiles` are those of the operator."""

    def __init__(
        self, profiles: Profiles, find_addresses: FindAddresses, limits: NetworkLimits = NetworkLimits()
    ) -> None:
        self._destinations = {
            name: tuple(map(parse_destination, profile.network)) for name, profile in profiles.items()
        }
        self._find_addresses = find_addresses
        self._limits = limits
        self._pace = Pace(limits.bytes_per_s)

    def open(self, profile: str, turn_id: str, serve_models: ServeConnection | None = None) -> "RunNetwork | None":
        """The network of a run; None if its profile has none. `serve_models` is the model server of the run."""
        destinations = self._destinations.get(profile, ())
        if not destinations:
            return None
        return RunNetwork(destinations, self._find_addresses, TurnId(turn_id), self._limits, self._pace, serve_models)


def find_network_fault(posture: Posture, *, expected: bool) -> str:
    """Why a booted sandbox must not be used: it has another network than its profile says. Empty if it may."""
    if (posture.network == ALLOWED_HOSTS_ONLY) == expected:
        return ""
    if expected:
        return f"its profile has a network, and this sandbox can't give it one ({posture.network[:200]})"
    return "its profile has no network, and the sandbox has one: workers and broker need the same EXECUTION_PROFILES"


@dataclass(slots=True)
class _Tally:
    """What is counted for one destination."""

    opened: int = 0
    refused: Counter[str] = field(default_factory=Counter[str])
    sent_bytes: int = 0
    received_bytes: int = 0


class _NotOpened(Exception):
    """A connection is not opened; the text is for the program."""

    def __init__(self, outcome: Outcome, message: str) -> None:
        super().__init__(message)
        self.outcome: Outcome = outcome


class RunNetwork:
    """The connections of one run. `serve` runs as a task for each; the owner of the line calls `receive`."""

    def __init__(
        self,
        destinations: Sequence[Destination],
        find_addresses: FindAddresses,
        turn_id: TurnId,
        limits: NetworkLimits,
        pace: Pace,
        serve_models: ServeConnection | None = None,
    ) -> None:
        self._destinations = destinations
        self._serve_models = serve_models
        self._find_addresses = find_addresses
        self._turn_id = turn_id
        self._limits = limits
        self._pace = pace
        self._relays: dict[int, Relay] = {}
        self._serving: dict[int, asyncio.Task[object]] = {}
        self._tallies: dict[tuple[str, int], _Tally] = {}
        self._requests = 0
        self._asked = 0
        self._sent = 0
        self._received = 0
        self._is_closed = False

    @property
    def records(self) -> tuple[ConnectionRecord, ...]:
        """What the run has used so far, by destination."""
        return tuple(
            ConnectionRecord(host, port, tally.opened, dict(tally.refused), tally.sent_bytes, tally.received_bytes)
            for (host, port), tally in self._tallies.items()
        )

    def serve(self, request: OpenStream, send: SendMessage) -> Coroutine[None, None, None]:
        """Open a connection and carry it to its end, as a task. A second request for a stream is ignored. The call
        itself raises BadMessage for more requests than a supervisor may send: each would be one more task."""
        self._requests += 1
        if self._requests > MAX_OPENED_STREAMS:
            raise BadMessage(f"more than {MAX_OPENED_STREAMS} connections are asked for")
        return self._serve_once(request, send)

    async def _serve_once(self, request: OpenStream, send: SendMessage) -> None:
        task = asyncio.current_task()
        if task is None or request.stream in self._serving:
            return
        self._serving[request.stream] = task
        try:
            await self._serve(request, send)
        finally:
            del self._serving[request.stream]

    def receive(self, message: StreamMessage) -> None:
        """Accept a message of the sandbox; never waits. Those of streams that have ended are ignored. Raises
        BadMessage."""
        if relay := self._relays.get(message.stream):
            relay.receive(message)

    def close(self) -> None:
        """Close all connections at once; later ones are refused."""
        self._is_closed = True
        for task in self._serving.values():
            task.cancel()

    async def _serve(self, request: OpenStream, send: SendMessage) -> None:
        host, port = _name(request)
        tally = self._find_tally(host, port)
        await self._pace.wait(_OPENING_COST_BYTES)
        try:
            if host == MODEL_HOST:
                async with self._open_model_server(port) as streams:
                    await self._carry(request.stream, streams, tally, send, is_inside=True)
            else:
                await self._carry(request.stream, await self._connect(host, port), tally, send)
        except _NotOpened as refused:
            PROGRAM_CONNECTIONS.labels(refused.outcome).inc()
            if not tally.refused[refused.outcome]:
                about = {"host": host, "port": port, "turn_id": self._turn_id, "outcome": refused.outcome}
                _log.warning("Refused a connection of a program", **about)
            tally.refused[refused.outcome] += 1
            await send(StreamOpened(request.stream, str(refused)))

    async def _carry(
        self, stream: int, streams: _Streams, tally: _Tally, send: SendMessage, *, is_inside: bool = False
    ) -> None:
        """Carry an open connection to its end. One that stays `is_inside` the worker has limits of its own for bytes
        and silence, and only the pace of all."""
        PROGRAM_CONNECTIONS.labels("opened").inc()
        tally.opened += 1

        async def count(direction: Direction, amount: int, cost: int) -> None:
            await self._count(tally, direction, amount, cost, is_inside=is_inside)

        idle_s = None if is_inside else self._limits.idle_s
        relay = Relay(stream, *streams, send, count=count, idle_s=idle_s)
        self._relays[stream] = relay
        try:
            await send(StreamOpened(stream))
            await relay.run()
        finally:
            relay.cut()
            del self._relays[stream]
            if not is_inside and self._is_over_bytes():
                PROGRAM_CONNECTIONS.labels("over_limit").inc()
                tally.refused["over_limit"] += 1

    @asynccontextmanager
    async def _open_model_server(self, port: int) -> AsyncGenerator[_Streams]:
        """A connection to the run's model server, which ends with the block. Raises _NotOpened."""
        self._check_open()
        self._check_allowed(MODEL_HOST, port)
        if port != MODEL_PORT or self._serve_models is None:
            raise _NotOpened("not_allowed", f"This run has no model server at {MODEL_HOST}:{port}.")
        try:
            ours, theirs = socket.socketpair()
        except OSError as error:
            reason = error.strerror or type(error).__name__
            raise _NotOpened("unreachable", f"{MODEL_HOST}:{port} can't be reached: {reason}.") from error
        reader, writer = await asyncio.open_unix_connection(sock=ours)
        serving = asyncio.create_task(self._serve_models(*await asyncio.open_unix_connection(sock=theirs)))
        try:
            yield reader, writer
        finally:
            abort(writer)
            await end_tasks(serving)
            if serving.done() and not serving.cancelled() and (error := serving.exception()):
                _log.error("The model server of a run failed", turn_id=self._turn_id, exc_info=error)

    async def _connect(self, host: str, port: int) -> _Streams:
        """Raises _NotOpened."""
        self._check_limits()
        self._check_allowed(host, port)
        try:
            addresses = await self._find_addresses(host, port, self._turn_id)
        except Invalid as error:
            raise _NotOpened("not_public", error.detail) from error
        except EverturnError as error:
            raise _NotOpened("unreachable", error.detail) from error
        reason = "it did not answer"
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._limits.connect_s):
                for address in addresses:
                    try:
                        return await asyncio.open_connection(address, port)
                    except OSError as error:
                        reason = error.strerror or type(error).__name__
        raise _NotOpened("unreachable", f"{host}:{port} can't be reached: {reason}.")

    def _check_allowed(self, host: str, port: int) -> None:
        if not any(destination.allows(host, port) for destination in self._destinations):
            allowed = ", ".join(map(str, self._destinations[:_MAX_NAMED]))
            raise _NotOpened("not_allowed", f"{host}:{port} is not allowed. Programs may connect to: {allowed}.")

    def _check_open(self) -> None:
        if self._is_closed:
            raise _NotOpened("over_limit", "The run is ending.")
        if len(self._serving) > self._limits.at_once:
            raise _NotOpened("over_limit", f"This program has {self._limits.at_once} open connections, the limit.")

    def _check_limits(self) -> None:
        self._check_open()
        self._asked += 1
        if self._asked > self._limits.connections:
            raise _NotOpened(
                "over_limit", f"This program has opened {self._limits.connections} connections, the limit."
            )
        if self._is_over_bytes():
            raise _NotOpened("over_limit", self._describe_bytes())

    async def _count(self, tally: _Tally, direction: Direction, amount: int, cost: int, *, is_inside: bool) -> None:
        """Count, and wait for the worker's pace. Raises ConnectionAbortedError beyond the limit of bytes."""
        outside = 0 if is_inside else amount
        if direction == "read":
            tally.received_bytes += amount
            self._received += outside
        else:
            tally.sent_bytes += amount
            self._sent += outside
        if not is_inside and self._is_over_bytes():
            raise ConnectionAbortedError(self._describe_bytes())
        await self._pace.wait(cost)

    def _is_over_bytes(self) -> bool:
        return self._sent > self._limits.sent_bytes or self._received > self._limits.received_bytes

    def _describe_bytes(self) -> str:
        sent, received = self._limits.sent_bytes // MIB, self._limits.received_bytes // MIB
        return f"This program has reached its limit of {sent} MiB sent or {received} MiB received."

    def _find_tally(self, host: str, port: int) -> _Tally:
        key = host, port
        if key not in self._tallies and len(self._tallies) >= self._limits.recorded:
            key = _OTHERS, 0
        return self._tallies.setdefault(key, _Tally())


def _name(request: OpenStream) -> tuple[str, int]:
    """Host and port in one form; what is no name of a host stays as it is, shortened and in ASCII, and is never
    allowed."""
    try:
        host = normalize_host(request.host)
    except ValueError:
        host = ascii(request.host[:_MAX_SHOWN_HOST])[1:-1][:_MAX_SHOWN_HOST] or "''"
    return host, request.port if 0 < request.port < 1 << 16 else 0
