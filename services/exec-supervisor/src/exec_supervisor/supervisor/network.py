"""The run's socket for connections: each becomes a stream on the line to the worker, which connects to the host.

The worker decides which hosts are allowed. Here are only the bounds that keep the program from exhausting this process.
A client sends one frame, `OpenStream`, and waits for `StreamOpened` before it sends anything else.
"""

import asyncio
import contextlib
import socket
import struct
from typing import Final

from everturn.execution.framing import FrameError, decode_message, encode_frame
from everturn.execution.messages import (
    MAX_OPENED_STREAMS,
    MAX_STREAMS,
    OpenStream,
    StreamLost,
    StreamMessage,
    StreamOpened,
)
from everturn.execution.records import BadMessage, build_message, parse_message
from everturn.execution.streams import Relay, SendMessage, abort
from exec_supervisor.supervisor.listeners import load_peer_uid

BACKLOG: Final = 2 * MAX_STREAMS
"""As many as the proxy opens at once, while the streams of earlier ones end: a client that does not block gets an error
if there is no room."""

REQUEST_TIMEOUT_S: Final = 5.0
MAX_REQUEST_BYTES: Final = 1024
_LENGTH: Final = struct.Struct(">I")


class ProgramNetwork:
    """Serves the connections of one run until it is cancelled. `send` sends to the worker."""

    def __init__(self, peer_uid: int, send: SendMessage) -> None:
        self._peer_uid = peer_uid
        self._send = send
        self._opening: dict[int, asyncio.Future[StreamOpened]] = {}
        self._relays: dict[int, Relay] = {}

    async def run(self, listener: socket.socket) -> None:
        """Accept connections until the run has had its number; open ones continue."""
        loop = asyncio.get_running_loop()
        free = asyncio.Semaphore(MAX_STREAMS)
        async with asyncio.TaskGroup() as connections:
            with listener:
                for stream in range(1, MAX_OPENED_STREAMS + 1):
                    await free.acquire()
                    peer, _ = await loop.sock_accept(listener)
                    serving = connections.create_task(self._serve(peer, stream))
                    serving.add_done_callback(lambda _: free.release())

    def receive(self, message: StreamOpened | StreamMessage) -> None:
        """Accept a message of the worker; never waits. Messages of streams that have ended are ignored."""
        if isinstance(message, StreamOpened):
            if (answer := self._opening.get(message.stream)) and not answer.done():
                answer.set_result(message)
        elif relay := self._relays.get(message.stream):
            relay.receive(message)

    async def _serve(self, peer: socket.socket, stream: int) -> None:
        if load_peer_uid(peer) != self._peer_uid:
            peer.close()
            return
        reader, writer = await asyncio.open_unix_connection(sock=peer)
        try:
            async with asyncio.timeout(REQUEST_TIMEOUT_S):
                request = await _receive_request(reader)
            opened = await self._open(OpenStream(stream, request.host, request.port), reader, writer)
            if not opened.error:
                await self._relays[stream].run()
        except (FrameError, BadMessage, TimeoutError, OSError, EOFError):
            # Whatever a program does wrong costs it the connection.
            if stream in self._relays:
                await self._send(StreamLost(stream))
        finally:
            self._relays.pop(stream, None)
            abort(writer)

    async def _open(
        self, request: OpenStream, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> StreamOpened:
        """Make the worker connect, and pass its answer on. The stream is registered before the answer is awaited:
        the first data can follow it at once."""
        answer: asyncio.Future[StreamOpened] = asyncio.get_running_loop().create_future()
        self._opening[request.stream] = answer
        self._relays[request.stream] = Relay(request.stream, reader, writer, self._send)
        try:
            await self._send(request)
            opened = await answer
        finally:
            del self._opening[request.stream]
        writer.write(encode_frame(build_message(StreamOpened(0, opened.error))))
        await writer.drain()
        if opened.error:
            del self._relays[request.stream]
            writer.close()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(REQUEST_TIMEOUT_S):
                    await writer.wait_closed()
        return opened


async def _receive_request(reader: asyncio.StreamReader) -> OpenStream:
    """The one frame before the stream, and nothing of the stream. Raises FrameError, BadMessage, EOFError."""
    size: int = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))[0]
    if size > MAX_REQUEST_BYTES:
        raise FrameError("too_large", f"{size} bytes, the limit is {MAX_REQUEST_BYTES}")
    return parse_message(decode_message(await reader.readexactly(size)), OpenStream)
