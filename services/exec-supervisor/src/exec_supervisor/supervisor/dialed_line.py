"""Runs a supervisor whose line to its worker is a connection that it opens to its broker, over TLS.

It trusts the one certificate that it was started with, and the broker trusts its token, which is valid once.
"""

import asyncio
import contextlib
import os
import signal
import ssl
import sys
from base64 import b64decode
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from everturn.execution.broker_messages import KEEPALIVE
from everturn.execution.framing import FrameDecoder, FrameStream, encode_frame
from everturn.execution.messages import DIAL_HOST, PIPE_FRAME_BYTES, Dial
from everturn.execution.records import build_message
from exec_supervisor.supervisor.standard_streams import ENDED_EARLY
from exec_supervisor.supervisor.worker_line import WorkerLine

CONNECT_LIMIT_S: Final = 30.0
"""For all attempts: some networks let a new Pod's connections through only after seconds."""

ATTEMPT_LIMIT_S: Final = 5.0
PAUSE_S: Final = 0.3
FLUSH_S: Final = 10.0

ServeOn = Callable[[WorkerLine, int], Awaitable[int]]


@dataclass(frozen=True, slots=True)
class BrokerPort:
    """Where a supervisor connects: an address, and the broker's certificate as DER in base64."""

    host: str
    port: int
    certificate: str


def run_on_dialed_line(port: BrokerPort, dial: Dial, serve: ServeOn) -> int:
    """Return the exit code of `serve`, which gets the line and the descriptor of its lifeline.

    1 if this process was terminated before it was done, or could not connect.
    """
    try:
        return asyncio.run(_run(port, dial, serve))
    except asyncio.CancelledError:
        return ENDED_EARLY
    except OSError as error:
        sys.stderr.write(f"can't connect to the broker at {port.host}:{port.port}: {error}\n")
        return ENDED_EARLY


async def _run(port: BrokerPort, dial: Dial, serve: ServeOn) -> int:
    if running := asyncio.current_task():
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, running.cancel)
    reader, writer = await _connect(port)
    # The lifeline must outlive the transport, whose descriptor may be used again once it is closed.
    lifeline = os.dup(writer.get_extra_info("socket").fileno())
    try:
        writer.write(encode_frame(build_message(dial)))
        line = WorkerLine(FrameStream(reader, writer, FrameDecoder(PIPE_FRAME_BYTES, allow_raw=True)))
        code = await serve(line, lifeline)
        # Waits for the broker's answer: with the Pod ends its network, and what it has not sent.
        writer.close()
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(FLUSH_S):
                await writer.wait_closed()
        return code
    finally:
        writer.transport.abort()
        os.close(lifeline)


async def _connect(port: BrokerPort) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect, with several attempts. Raises OSError."""
    context = ssl.create_default_context(cadata=b64decode(port.certificate))
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    loop = asyncio.get_running_loop()
    deadline = loop.time() + CONNECT_LIMIT_S
    while True:
        try:
            async with asyncio.timeout(ATTEMPT_LIMIT_S):
                reader, writer = await asyncio.open_connection(
                    port.host, port.port, ssl=context, server_hostname=DIAL_HOST
                )
        except OSError:
            if loop.time() + PAUSE_S > deadline:
                raise
            await asyncio.sleep(PAUSE_S)
        else:
            connection = writer.get_extra_info("socket")
            for level, option, value in KEEPALIVE:
                connection.setsockopt(level, option, value)
            return reader, writer
