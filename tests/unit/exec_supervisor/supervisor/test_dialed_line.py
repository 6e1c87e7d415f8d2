"""A supervisor that connects to its broker: only to the one that it was started for, without losing its last frames."""

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator

import pytest

from everturn.execution.framing import FrameDecoder
from everturn.execution.messages import PIPE_FRAME_BYTES
from exec_supervisor.broker.dial_port import DialPort, build_certificate, open_dial_port

SIZE = 20_000_000
SUPERVISOR = """
import sys
from everturn.execution.messages import Dial, Stop
from exec_supervisor.supervisor import dialed_line
from exec_supervisor.supervisor.lifeline import LifelineCut, watch_lifeline

async def serve(line, lifeline):
    if sys.argv[5] == "wait":
        try:
            await watch_lifeline(lifeline)
        except LifelineCut:
            return 5
    for _ in range(200):
        await line.send_raw(bytes(100_000))
    await line.send(Stop("cancelled"))
    return 7

dialed_line.CONNECT_LIMIT_S = 0.7
host, _, port = sys.argv[1].rpartition(":")
broker = dialed_line.BrokerPort(host, int(port), sys.argv[2])
sys.exit(dialed_line.run_on_dialed_line(broker, Dial(sys.argv[3], sys.argv[4]), serve))
"""


@pytest.fixture
async def port() -> AsyncIterator[DialPort]:
    async with open_dial_port("127.0.0.1:0", 1) as opened:
        yield opened


async def start(port: DialPort, token: str, *, certificate: str = "", does: str = "send") -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-I",
        "-c",
        SUPERVISOR,
        port.address,
        certificate or port.certificate,
        "p1",
        token,
        does,
        stderr=subprocess.PIPE,
    )


async def test_all_that_it_sends_before_it_ends_arrives(port: DialPort):
    ticket = port.expect("p1")
    process = await start(port, ticket.token)
    async with asyncio.timeout(50):
        line = await ticket.line
        # It has ended its work long before all is read.
        await asyncio.sleep(0.5)
        decoder, frames = FrameDecoder(PIPE_FRAME_BYTES, allow_raw=True), []
        while data := await line.read():
            frames += decoder.feed(data)
        code = await process.wait()
    line.close()

    assert sum(len(frame) for frame in frames if isinstance(frame, bytes)) == SIZE
    assert frames[-1] == {"kind": "stop", "reason": "cancelled"}
    assert code == 7


@pytest.mark.parametrize("ends", ["close_input", "close"])
async def test_its_lifeline_ends_with_the_line(port: DialPort, ends: str):
    ticket = port.expect("p1")
    process = await start(port, ticket.token, does="wait")
    async with asyncio.timeout(50):
        line = await ticket.line
        getattr(line, ends)()
        code = await process.wait()
    line.close()

    assert code == 5


async def test_a_broker_with_another_certificate_gets_nothing(port: DialPort):
    ticket = port.expect("p1")
    process = await start(port, ticket.token, certificate=build_certificate("everturn-broker").der)
    async with asyncio.timeout(50):
        _, said = await process.communicate()

    assert process.returncode == 1
    assert said.startswith(f"can't connect to the broker at {port.address}: ".encode())
    assert not ticket.line.done()
