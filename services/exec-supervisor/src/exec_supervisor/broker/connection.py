"""A connection: five requests (`everturn.execution.broker_messages`), and the line that Attach turns it into."""

import asyncio
import contextlib
from typing import Final, TypeVar

import structlog

from everturn.core.cancellation import end_tasks
from everturn.execution.broker_messages import (
    BROKER_FRAME_BYTES,
    Attach,
    Attached,
    BrokerRefusal,
    KillPair,
    ListPairs,
    PairEnded,
    PairStarted,
    RefusalCode,
    RemovePair,
    StartPair,
)
from everturn.execution.framing import FrameDecoder, FrameError, FrameStream
from everturn.execution.records import BadMessage, MessageClass, build_message, parse_message
from exec_supervisor.broker.engine import EngineDown, EngineRefused, StartFailed
from exec_supervisor.broker.pair import Pair
from exec_supervisor.broker.pairs import Busy, Pairs, UnknownPair, UnknownProfile, build_refusal
from exec_supervisor.broker.pool import Pool

_log = structlog.stdlib.get_logger()

SEND_TIMEOUT_S: Final = 10.0
REQUEST_TIMEOUT_S: Final = 30.0
"""Seconds for a request to arrive completely. Callers send it at once; a silent one would block a connection."""

LIFELINE_S: Final = 2.0
"""How long a supervisor whose stdin is closed has to close its line."""

AFTER_EXECUTOR_S: Final = 65.0
"""A supervisor whose executor has ended may still be forwarding its outputs, which can take 60 s."""

MAX_RUN_ID_CHARS: Final = 200
_CHUNK_BYTES: Final = 64 << 10

Request = StartPair | Attach | KillPair | RemovePair | ListPairs
ResultT = TypeVar("ResultT")


class _Refused(Exception):
    """The request was rejected."""

    def __init__(self, code: RefusalCode, message: str) -> None:
        super().__init__(message)
        self.refusal = BrokerRefusal(code, message)


class _Disconnected(Exception):
    """The other end has closed the connection."""


class BrokerConnection:
    """Serves one connection until either side closes it. The pair that it started ends with it."""

    def __init__(
        self,
        pairs: Pairs,
        pool: Pool,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        *,
        request_timeout_s: float = REQUEST_TIMEOUT_S,
    ) -> None:
        self._pairs = pairs
        self._pool = pool
        self._reader = reader
        self._writer = writer
        self._stream = FrameStream(reader, writer, FrameDecoder(BROKER_FRAME_BYTES))
        self._own: Pair | None = None
        self._request_timeout_s = request_timeout_s

    async def run(self) -> None:
        try:
            while (request := await self._receive()) is not None:
                if isinstance(request, Attach):
                    if await self._try_attach(request):
                        return
                    continue
                await self._send(await self._while_connected(request))
        except (_Disconnected, OSError, TimeoutError) as error:
            # There is no caller to answer. A worker that stops a run also disconnects like this; frequent silence is a
            # fault.
            _log.info(
                "Closed a connection whose caller is gone",
                reason=_name_end(error),
                run=self._own.run_id if self._own else "",
            )
        except (FrameError, BadMessage) as error:
            _log.warning("Rejected an invalid request", detail=str(error))
            # The answer is a courtesy: the caller of an invalid request may have disconnected as well.
            with contextlib.suppress(OSError, TimeoutError):
                await self._send(BrokerRefusal("bad_message", str(error)))
        finally:
            if self._own is not None:
                self._pairs.end(self._own)

    async def _receive(self) -> Request | None:
        async with asyncio.timeout(self._request_timeout_s):
            frame = await self._stream.receive()
        if frame is None:
            return None
        frame = {} if isinstance(frame, bytes) else frame
        return parse_message(frame, StartPair, Attach, KillPair, RemovePair, ListPairs)

    async def _while_connected(self, request: Request) -> MessageClass:
        """Answer a request, unless the caller disconnects first. Raises _Disconnected, BadMessage."""
        answering = asyncio.create_task(self._answer(request))
        watching = asyncio.create_task(self._stream.read_more())
        try:
            await asyncio.wait((answering, watching), return_when=asyncio.FIRST_COMPLETED)
            if not answering.done():
                raise _Disconnected if not watching.result() else BadMessage("only one request at a time is allowed")
            return answering.result()
        finally:
            await _cancel(answering)
            await _cancel(watching)

    async def _answer(self, request: Request) -> MessageClass:
        try:
            match request:
                case StartPair():
                    return await self._start(request)
                case KillPair(pair_id=pair_id):
                    return PairEnded(await self._pairs.wait_for_end(pair_id, force=True))
                case RemovePair(pair_id=pair_id):
                    return PairEnded(await self._pairs.wait_for_end(pair_id, force=False))
                case ListPairs(labels=labels):
                    return self._pairs.list(labels)
                case Attach():
                    raise _Refused("bad_message", "this message is not valid here")
        except (UnknownProfile, UnknownPair, Busy, EngineDown, EngineRefused, StartFailed) as error:
            return build_refusal(error)
        except _Refused as error:
            return error.refusal

    async def _start(self, request: StartPair) -> PairStarted:
        if self._own is not None:
            raise _Refused("bad_message", "this connection has already started a pair")
        if not 0 < len(request.run_id) <= MAX_RUN_ID_CHARS or not request.run_id.isprintable():
            raise _Refused("bad_message", f"a run_id must have 1 to {MAX_RUN_ID_CHARS} printable characters")
        booted, warm = await self._pool.acquire(request.profile, request.run_id)
        self._own = pair = booted.pair
        _log.info("Started a pair", pair=pair.name, run=request.run_id, profile=request.profile, warm=warm)
        return PairStarted(
            pair.pair_id,
            warm,
            pair.plan.profile.limits,
            booted.posture,
            booted.images.executor,
            booted.images.supervisor,
        )

    async def _try_attach(self, request: Attach) -> bool:
        """Become the supervisor's line until that ends; false if this connection can't attach."""
        pair = self._own
        if pair is None or pair.pair_id != request.pair_id or pair.state != "started" or self._stream.mid_frame:
            await self._send(
                BrokerRefusal("not_attachable", "this connection did not start this pair, or is already attached")
            )
            return False
        pair.state = "attached"
        await self._send(Attached())
        force = await splice(pair, self._reader, self._writer)
        self._pairs.end(pair, force=force)
        return True

    async def _send(self, message: MessageClass) -> None:
        async with asyncio.timeout(SEND_TIMEOUT_S):
            await self._stream.send(build_message(message), BROKER_FRAME_BYTES)


def _name_end(error: _Disconnected | OSError | TimeoutError) -> str:
    """Why a connection ended before its requests did. A TimeoutError is also an OSError."""
    match error:
        case _Disconnected():
            return "left"
        case TimeoutError():
            return "silent"
        case _:
            return "broken"


async def splice(pair: Pair, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
    """Copy bytes both ways until the supervisor has ended. Returns whether it must be ended by force.

    When the worker closes its side, the supervisor's stdin (its lifeline) is closed too; it then has 2 s to end.
    """
    up = asyncio.create_task(_carry_up(pair, reader))
    down = asyncio.create_task(_carry_down(pair, writer))
    orphaned = asyncio.create_task(_wait_for_orphan(pair))
    try:
        await asyncio.wait((up, down, orphaned), return_when=asyncio.FIRST_COMPLETED)
        if up.done() and not down.done():
            await asyncio.wait((down,), timeout=LIFELINE_S)
        return not down.done()
    finally:
        for task in (up, down, orphaned):
            await _cancel(task)


async def _carry_up(pair: Pair, reader: asyncio.StreamReader) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(_CHUNK_BYTES):
            pair.line.write(data)
            await pair.line.drain()
    pair.line.close_input()


async def _carry_down(pair: Pair, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await pair.read():
            writer.write(data)
            await writer.drain()


async def _wait_for_orphan(pair: Pair) -> None:
    await pair.wait_for_executor_end()
    await asyncio.sleep(AFTER_EXECUTOR_S)


async def _cancel(task: "asyncio.Task[ResultT]") -> None:
    """Cancel a task and retrieve its result, so that its exception is not logged as unhandled."""
    await end_tasks(task)
    if task.done() and not task.cancelled():
        task.exception()
