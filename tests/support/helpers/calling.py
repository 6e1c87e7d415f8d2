"""A caller of a broker: sends requests, receives answers, and becomes the line of a supervisor."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import cast

from everturn.execution.broker_messages import (
    BROKER_FRAME_BYTES,
    Attach,
    Attached,
    BrokerRefusal,
    PairEnded,
    PairList,
    PairStarted,
    StartPair,
)
from everturn.execution.framing import FrameDecoder, FrameStream
from everturn.execution.records import MessageClass, build_message, parse_message

Answer = PairStarted | Attached | PairEnded | PairList | BrokerRefusal


class Caller:
    """One connection. After `attach`, `reader` and `writer` are the supervisor's streams."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.stream = FrameStream(reader, writer, FrameDecoder(BROKER_FRAME_BYTES))

    async def send(self, message: MessageClass) -> None:
        await self.stream.send(build_message(message))

    async def hear(self) -> Answer:
        frame = await self.stream.receive()
        assert isinstance(frame, dict), "the broker has hung up"
        message = parse_message(frame, PairStarted, Attached, PairEnded, PairList, BrokerRefusal)
        return cast("Answer", message)

    async def ask(self, message: MessageClass) -> Answer:
        await self.send(message)
        return await self.hear()

    async def start(self, profile: str = "default", run_id: str = "run_1") -> PairStarted:
        started = await self.ask(StartPair(profile, run_id))
        assert isinstance(started, PairStarted), started
        return started

    async def start_and_attach(self, profile: str = "default", run_id: str = "run_1") -> PairStarted:
        started = await self.start(profile, run_id)
        assert await self.ask(Attach(started.pair_id)) == Attached()
        return started


@asynccontextmanager
async def calling(socket: Path) -> AsyncGenerator[Caller]:
    """A connection to the broker at this socket, closed at the end."""
    reader, writer = await asyncio.open_unix_connection(socket)
    try:
        yield Caller(reader, writer)
    finally:
        writer.transport.abort()
