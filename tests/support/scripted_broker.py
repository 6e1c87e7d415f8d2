"""A broker that follows a script: it answers each request of each connection with what the test hands it."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path

from everturn.execution.broker_messages import (
    Attach,
    Attached,
    BrokerRefusal,
    KillPair,
    ListPairs,
    PairEnded,
    PairStarted,
    RemovePair,
    StartPair,
)
from everturn.execution.framing import RAW_CHUNK_BYTES, FrameDecoder, FrameStream, encode_frame
from everturn.execution.messages import Finished, Launch, LimitName, Posture, Report, RunLimits
from everturn.execution.records import MessageClass, build_message, parse_message

POSTURE = Posture("containers", "cpython 3", 1001, "u", "n", "m", "p", "d", "s")
LIMITS = RunLimits(output_files=7)
PAIR = PairStarted("pair-secret", True, LIMITS, POSTURE, "sha256:e", "sha256:s")
REPORT = Report(0, None, None, "hello\n", "", 6, 0)

Script = Callable[[MessageClass], MessageClass | None]
"""None closes the connection, and HANGS is no answer."""
HANGS = BrokerRefusal("busy", "")


class ScriptedBroker:
    """`requests` are all that was asked, `open_lines` the connections that are still there."""

    def __init__(self, address: Path, script: Script, finished: Finished | None) -> None:
        self.url = f"unix://{address}"
        self.requests: list[MessageClass] = []
        self.open_lines = 0
        self.all_closed = asyncio.Event()
        self.outputs = b""
        """The tar that a run sends before its end."""
        self._script = script
        self._finished = finished

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.open_lines += 1
        try:
            await self._serve(FrameStream(reader, writer, FrameDecoder(8 << 20, allow_raw=True)), writer)
        except (ConnectionError, asyncio.CancelledError):
            pass
        finally:
            writer.close()
            self.open_lines -= 1
            if not self.open_lines:
                self.all_closed.set()

    async def _serve(self, stream: FrameStream, writer: asyncio.StreamWriter) -> None:
        while isinstance(frame := await stream.receive(), dict):
            if frame["kind"] == Launch.kind:
                await self._run(stream)
                continue
            request = parse_message(frame, StartPair, Attach, KillPair, RemovePair, ListPairs)
            self.requests.append(request)
            answer = self._script(request)
            if answer is None:
                return
            if answer is HANGS:
                await asyncio.Event().wait()
            writer.write(encode_frame(build_message(answer)))
            await writer.drain()

    async def _run(self, stream: FrameStream) -> None:
        """The attached supervisor: receives the inputs and reports the end, or disconnects."""
        while isinstance(await stream.receive(), bytes):
            pass
        if self._finished is None:
            raise ConnectionResetError
        for start in range(0, len(self.outputs), RAW_CHUNK_BYTES):
            await stream.send_raw(self.outputs[start : start + RAW_CHUNK_BYTES])
        await stream.send(build_message(self._finished), 8 << 20)


def follow(*, hits: tuple[LimitName, ...] = (), busy: int = 0, refusal: BrokerRefusal | None = None) -> Script:
    """A script that starts a pair, after `busy` refusals or never, and reports `hits` when it is removed."""
    left = busy

    def answer(request: MessageClass) -> MessageClass | None:
        nonlocal left
        match request:
            case StartPair():
                left -= 1
                return BrokerRefusal("busy", "no room") if left >= 0 else refusal or PAIR
            case Attach(pair_id=pair_id):
                return Attached() if pair_id == PAIR.pair_id else BrokerRefusal("unknown_pair", "")
            case _:
                return PairEnded(hits)

    return answer


@contextlib.asynccontextmanager
async def open_broker(folder: Path, script: Script, finished: Finished | None = None) -> AsyncIterator[ScriptedBroker]:
    broker = ScriptedBroker(folder / "broker.sock", script, finished)
    server = await asyncio.start_unix_server(broker.serve, folder / "broker.sock")
    try:
        yield broker
    finally:
        server.close()
