"""A run in a task: plays the recorded input to a supervisor and stores what it sends."""

import asyncio
import contextlib
import http
import json
import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from typing import Any, Final, cast

import urllib3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError
from botocore.session import Session

from everturn.execution.framing import Frame, FrameDecoder, FrameError, FrameStream, encode_frame
from everturn.execution.messages import PIPE_FRAME_BYTES, Finished, Launch, Stop
from everturn.execution.records import BadMessage, MessageClass, build_message, parse_message
from everturn.execution.task_orders import MAX_LINE_BYTES, TaskExit, TaskOrder
from exec_supervisor.supervisor.run import OpenSandbox, run_supervisor
from exec_supervisor.supervisor.worker_line import WorkerLine
from exec_supervisor.task.start import TaskStart

TRIES: Final = 5
"""Attempts for each request, with pauses of 0.5 to 4 s, because the network of a new task may come up late."""

_CONNECT_TIMEOUT_S: Final = 5.0
_READ_TIMEOUT_S: Final = 30.0
_AGAIN: Final = (429, 500, 502, 503, 504)
_MAX_ANSWER_BYTES: Final = 300
_PIECE_BYTES: Final = 64 << 10
_CUT_WAIT_S: Final = 20.0
"""How long a supervisor whose line was cut has to end its sandbox."""


class TaskFailed(Exception):
    """The task can't do what it was ordered."""


def run_task(start: TaskStart) -> int:
    """Read the order, run the program and store the result. A run that fails has a result too, if it can be stored."""
    began = time.monotonic()
    try:
        order = load_order(start.secret_id, start.region)
    except TaskFailed as error:
        sys.stderr.write(f"can't read the secret {start.secret_id}: {error}\n")
        return TaskExit.NO_ORDER
    requests = _open_requests()
    try:
        line = load_line(requests, order.line_url)
        left_s = began + order.ends_within_s - time.monotonic()
        result = asyncio.run(play(line, start.open_run, ends_within_s=left_s, max_bytes=order.max_result_bytes))
    except TaskFailed as error:
        result = _encode(Finished("not_started", str(error), 0, None))
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        store_result(requests, order, result)
    except TaskFailed as error:
        sys.stderr.write(f"can't store the result: {error}\n")
        return TaskExit.NOT_STORED
    return TaskExit.STORED


def load_order(secret_id: str, region: str) -> TaskOrder:
    """The order in a secret, read with the credentials of the container. Raises TaskFailed."""
    config = Config(
        connect_timeout=_CONNECT_TIMEOUT_S,
        read_timeout=_READ_TIMEOUT_S,
        retries={"mode": "standard", "total_max_attempts": TRIES},
    )
    try:
        open_any = cast("Callable[..., Any]", Session().create_client)  # pyright: ignore[reportUnknownMemberType] it has no types
        client = open_any("secretsmanager", region_name=region, config=config)
        text = str(client.get_secret_value(SecretId=secret_id)["SecretString"])
        return parse_message(json.loads(text), TaskOrder)
    except (BotoCoreError, ClientError, BadMessage, ValueError, KeyError) as error:
        raise TaskFailed(f"{type(error).__name__}: {error}") from error


def load_line(requests: urllib3.PoolManager, url: str) -> bytes:
    """The recorded input. Raises TaskFailed."""
    try:
        answer = requests.request("GET", url, preload_content=False, decode_content=False)
        line = answer.read(MAX_LINE_BYTES + 1)
    except urllib3.exceptions.HTTPError as error:
        raise TaskFailed(f"the run's input can't be read: {_name_cause(error)}") from error
    if answer.status != http.HTTPStatus.OK:
        sys.stderr.write(f"can't read the run's input: {_describe(answer.status, line)}\n")
        raise TaskFailed(f"the run's input can't be read: HTTP {answer.status}")
    if len(line) > MAX_LINE_BYTES:
        raise TaskFailed(f"the run's input has more than {MAX_LINE_BYTES} bytes")
    return line


def store_result(requests: urllib3.PoolManager, order: TaskOrder, result: bytes) -> None:
    """Send the result. Raises TaskFailed."""
    fields = {**order.result_fields, "file": ("result", result, "application/octet-stream")}
    try:
        answer = requests.request("POST", order.result_url, fields=fields)
    except urllib3.exceptions.HTTPError as error:
        raise TaskFailed(_name_cause(error)) from error
    if answer.status not in (http.HTTPStatus.OK, http.HTTPStatus.CREATED, http.HTTPStatus.NO_CONTENT):
        raise TaskFailed(_describe(answer.status, answer.data))


async def play(line: bytes, open_run: OpenSandbox, *, ends_within_s: float, max_bytes: int) -> bytes:
    """Play a recorded input to a supervisor and return what it sends. SIGTERM stops the program, as a person does who
    cancels a run. Raises TaskFailed if nothing was run."""
    check_line(line)
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    ours, theirs = socket.socketpair()
    supervising = asyncio.create_task(_supervise(theirs, open_run))
    reader, writer = await asyncio.open_unix_connection(sock=ours)
    sending = asyncio.create_task(_send(writer, line, stop))
    result, problem = bytearray(), ""
    try:
        async with asyncio.timeout(ends_within_s):
            while not problem and (piece := await reader.read(_PIECE_BYTES)):
                result += piece
                if len(result) > max_bytes:
                    problem = f"the result has more than {max_bytes} bytes"
    except TimeoutError:
        problem = f"the task did not end within {ends_within_s:.0f} s"
    finally:
        # Cuts the lifeline of a supervisor that has not ended, which then kills everything it has started.
        writer.transport.abort()
        sending.cancel()
        await asyncio.wait((supervising, sending), timeout=_CUT_WAIT_S)
        supervising.cancel()
    if not problem and supervising.done() and (error := supervising.exception()) is not None:
        while isinstance(error, BaseExceptionGroup):
            error = cast("BaseExceptionGroup[BaseException]", error).exceptions[0]
        problem = f"{type(error).__name__}: {error}"
    return _encode(Finished("died", problem, 0, None)) if problem else bytes(result)


def check_line(line: bytes) -> None:
    """Raises TaskFailed unless the recorded input begins with a launch."""
    decoder, frames = FrameDecoder(PIPE_FRAME_BYTES, allow_raw=True), list[Frame]()
    try:
        for start in range(0, len(line), _PIECE_BYTES):
            if frames := decoder.feed(line[start : start + _PIECE_BYTES]):
                break
        first = frames[0] if frames else b""
        parse_message({} if isinstance(first, bytes) else first, Launch)
    except (FrameError, BadMessage) as error:
        raise TaskFailed(f"the run's input does not begin with a launch: {error}") from error


async def _supervise(end: socket.socket, open_run: OpenSandbox) -> None:
    """Run a supervisor on one end of a pair of sockets, which is closed when it returns."""
    reader, writer = await asyncio.open_unix_connection(sock=end)
    # The lifeline must outlive the transport, whose descriptor may be used again once it is closed.
    lifeline = os.dup(end.fileno())
    try:
        line = WorkerLine(FrameStream(reader, writer, FrameDecoder(PIPE_FRAME_BYTES, allow_raw=True)))
        await run_supervisor(line, lifeline, open_run)
    finally:
        writer.close()
        os.close(lifeline)


async def _send(writer: asyncio.StreamWriter, line: bytes, stop: asyncio.Event) -> None:
    """Send the recorded input, and a stop if one is requested; then the line stays open."""
    with contextlib.suppress(OSError):
        for start in range(0, len(line), _PIECE_BYTES):
            writer.write(line[start : start + _PIECE_BYTES])
            await writer.drain()
        await stop.wait()
        writer.write(_encode(Stop("cancelled")))
        await writer.drain()


def _encode(message: MessageClass) -> bytes:
    return encode_frame(build_message(message), PIPE_FRAME_BYTES)


def _open_requests() -> urllib3.PoolManager:
    return urllib3.PoolManager(
        timeout=urllib3.Timeout(connect=_CONNECT_TIMEOUT_S, read=_READ_TIMEOUT_S),
        # A result is stored under one name, so its request can be repeated.
        retries=urllib3.Retry(
            TRIES - 1,
            backoff_factor=0.5,
            backoff_max=4,
            status_forcelist=_AGAIN,
            allowed_methods=None,
            raise_on_status=False,
        ),
    )


def _name_cause(error: urllib3.exceptions.HTTPError) -> str:
    """Without its text, which can have the signed URL."""
    cause = error.reason if isinstance(error, urllib3.exceptions.MaxRetryError) else None
    return type(cause or error).__name__


def _describe(status: int, answer: bytes) -> str:
    """A refusal of S3, which says in XML whether the URL has expired."""
    return f"HTTP {status}: {' '.join(answer[:_MAX_ANSWER_BYTES].decode('utf-8', 'replace').split())}"
