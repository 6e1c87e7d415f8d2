"""The worker's end of a supervisor: a small process that speaks the protocol, correctly or not, replaces it."""

import asyncio
import errno
import ssl
import sys
import textwrap
import time

import pytest

from chat_proc.sandbox.local_supervisor import open_supervisor
from chat_proc.sandbox.network import NetworkAccess
from chat_proc.sandbox.supervised import BootedSupervisor, SupervisorFailed, run_supervised
from everturn.core.errors import Unavailable
from everturn.execution.framing import FrameDecoder, FrameStream, encode_frame
from everturn.execution.messages import (
    MAX_OPENED_STREAMS,
    PIPE_FRAME_BYTES,
    Boot,
    Capability,
    Finished,
    GatewayCall,
    Interpreter,
    Launch,
    LimitName,
    Posture,
    RunLimits,
    ToolReply,
    UidRange,
)
from everturn.execution.profiles import load_profiles
from everturn.execution.records import build_message

BOOT = Boot(RunLimits(output_bytes=1000), Interpreter("/python", ()), "/bwrap", "/run/x", UidRange(20_000, 20_999))
LAUNCH = Launch(
    execution_id="run-1",
    program="pass",
    outputs=(),
    timeout_s=5,
    limits=BOOT.limits,
    capability=Capability(),
    nonce="n",
)

PRELUDE = """
import os, sys, time
from everturn.execution.messages import *
from everturn.execution.framing import *
from everturn.execution.records import *
decoder = FrameDecoder(PIPE_FRAME_BYTES, allow_raw=True)
waiting = []
def receive():
    while not waiting:
        data = os.read(0, 65536)
        if not data: sys.exit(1)
        waiting.extend(decoder.feed(data))
    return waiting.pop(0)
def send(message): os.write(1, encode_frame(build_message(message)))
def finish(detail=""): send(Finished("ended", detail, 1, None))
parse_message(receive(), Boot)
send(Ready(Posture("l", "r", 1, "u", "n", "m", "p", "d", "s")))
launch = parse_message(receive(), Launch)
"""


def supervisor(text: str) -> list[str]:
    return [sys.executable, "-c", PRELUDE + textwrap.dedent(text)]


async def echo(call: GatewayCall) -> ToolReply:
    return ToolReply(call.id, True, call.arguments)


async def run(text: str, pieces=(), call_tool=echo, stop=None, network=None):
    async with open_supervisor(supervisor(text), BOOT) as booted:
        return await run_supervised(booted, LAUNCH, pieces, call_tool, stop or asyncio.Event(), network)


async def test_launch_and_inputs_go_down_and_outputs_come_up():
    done = await run(
        """
        got = []
        while isinstance(frame := receive(), bytes): got.append(frame)
        parse_message(frame, InputsEnd)
        os.write(1, encode_raw(b"tar-") + encode_raw(b"bytes"))
        finish(f"{launch.execution_id} {got}")
        """,
        [b"one", b"two"],
    )

    assert done.tar == b"tar-bytes"
    assert done.finished.detail == "run-1 [b'one', b'two']"


async def test_calls_are_answered_and_a_failing_tool_is_an_answer():
    async def tool(call: GatewayCall) -> ToolReply:
        if call.id == 2:
            raise Unavailable("down")
        return ToolReply(call.id, True, "x" * (2 << 20) if call.id == 3 else "fine")

    done = await run(
        """
        receive()
        for number in (1, 2, 3): send(GatewayCall(number, "a.b", {}))
        replies = sorted((parse_message(receive(), ToolReply) for _ in range(3)), key=lambda reply: reply.id)
        finish(str([(reply.ok, reply.error_code) for reply in replies]))
        """,
        call_tool=tool,
    )

    assert done.finished.detail == "[(True, ''), (False, 'tool_error'), (False, 'too_large')]"


async def test_a_stop_is_forwarded():
    stop = asyncio.Event()
    stop.set()

    done = await run(
        "frames = [receive(), receive()]\nfinish(str(sorted(frame['kind'] for frame in frames)))", stop=stop
    )

    assert done.finished.detail == "['inputs_end', 'stop']"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("sys.exit(3)", "without a result"),
        ("sys.exit('the reason')", "the reason"),
        ("os.write(1, b'\\0\\0\\0\\1x'); time.sleep(9)", "invalid frame"),
        ("send(Hello('n')); time.sleep(9)", "invalid frame"),
        ("for _ in range(50): os.write(1, encode_raw(b'x' * 60000))\ntime.sleep(9)", "exceeds the limit of the run"),
    ],
)
async def test_a_supervisor_without_a_result_is_a_failure_with_its_reason(text, message):
    with pytest.raises(SupervisorFailed, match=message):
        await run(text)


@pytest.mark.parametrize(("asked", "is_allowed"), [(MAX_OPENED_STREAMS, True), (MAX_OPENED_STREAMS + 1, False)])
async def test_a_supervisor_asks_for_a_bounded_number_of_connections(asked, is_allowed):
    async def find_addresses(host, port, turn_id):
        raise AssertionError

    profiles = load_profiles('{"net": {"network": ["api.example.com:443"]}}')
    network = NetworkAccess(profiles, find_addresses).open("net", "turn_1")
    text = f"for it in range({asked}): send(OpenStream(it, 'other.example.com', 443))\nfinish()"

    if is_allowed:
        assert (await run(text, network=network)).finished.verdict == "ended"
    else:
        with pytest.raises(SupervisorFailed, match=f"more than {MAX_OPENED_STREAMS} connections"):
            await run(text, network=network)


class BrokenConnection:
    """Both halves of a connection: sends one call of a program, and breaks after `sent` writes."""

    def __init__(self, error: OSError, *, sent: int) -> None:
        self._error = error
        self._left = sent
        self._broke = asyncio.Event()
        self._received = [encode_frame(build_message(GatewayCall(1, "a.b", {})))]

    async def read(self, n: int, /) -> bytes:
        if self._received:
            return self._received.pop()
        await self._broke.wait()
        raise self._error

    def write(self, data: bytes, /) -> None:
        self._left -= 1

    async def drain(self) -> None:
        if self._left < 0:
            self._broke.set()
            raise self._error


@pytest.mark.parametrize("sent", [0, 2])
@pytest.mark.parametrize(
    "error", [OSError(errno.ETIMEDOUT, ""), OSError(errno.EHOSTUNREACH, ""), ssl.SSLError("bad record")]
)
async def test_a_broken_connection_is_a_failure_whichever_task_finds_it(error, sent):
    """The launch and its inputs are two writes; the third is the answer to a call, or the stop."""
    connection = BrokenConnection(error, sent=sent)
    stop = asyncio.Event()
    stop.set()
    booted = BootedSupervisor(
        FrameStream(connection, connection, FrameDecoder(PIPE_FRAME_BYTES, allow_raw=True)),
        Posture("l", "r", 1, "u", "n", "m", "p", "d", "s"),
        BOOT.limits,
        read_errors=no_errors,
        load_hits=no_hits,
        is_waiting=lambda: True,
    )

    with pytest.raises(SupervisorFailed, match="connection to the supervisor broke"):
        await run_supervised(booted, LAUNCH, (), echo, stop)


async def no_errors() -> str:
    return ""


async def no_hits(finished: Finished) -> tuple[LimitName, ...]:
    return ()


async def test_a_command_that_does_not_exist_is_an_os_error():
    with pytest.raises(OSError, match="nowhere"):
        async with open_supervisor(["/nowhere"], BOOT):
            pass


@pytest.mark.parametrize("delay_s", [0, 0.001, 0.01, 0.1, 0.4])
async def test_cancelling_ends_any_process_within_two_seconds(tmp_path, delay_s):
    started = tmp_path / "pid"
    text = f"open({str(started)!r}, 'w').write(str(os.getpid())); time.sleep(50)"
    running = asyncio.create_task(run(text))
    await asyncio.sleep(delay_s)

    begun = time.monotonic()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running

    assert time.monotonic() - begun < 2.5 * 3
    if started.exists():
        with pytest.raises(ProcessLookupError):
            __import__("os").kill(int(started.read_text()), 0)


async def test_a_running_call_is_cancelled_with_the_run():
    cancelled = asyncio.Event()

    async def forever(call: GatewayCall) -> ToolReply:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()
        raise AssertionError

    await run("receive(); send(GatewayCall(1, 'a.b', {})); time.sleep(0.2); finish()", call_tool=forever)

    assert cancelled.is_set()
