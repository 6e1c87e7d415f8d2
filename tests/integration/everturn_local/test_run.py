"""`make run`: signals and the port."""

import asyncio
import os
import signal
import socket

import pytest

from everturn_local.ports import LOOPBACK
from everturn_local.readiness import Readiness, reach_url
from everturn_local.run import PortInUse, StopSignals, check_port, wait_until_ready
from everturn_local.settings import LocalSettings


def test_a_taken_port_is_an_error_that_says_what_to_do():
    with socket.create_server((LOOPBACK, 0)) as listener, pytest.raises(PortInUse, match="PORT=8090 make run"):
        check_port(LocalSettings(port=listener.getsockname()[1]))


@pytest.mark.parametrize("sig", [signal.SIGINT, signal.SIGTERM])
async def test_a_signal_ends_what_is_awaited_and_waits_for_its_cleanup(sig: signal.Signals):
    signals, cleaned = StopSignals(), asyncio.Event()

    async def work() -> None:
        try:
            os.kill(os.getpid(), sig)
            await asyncio.get_running_loop().create_future()
        finally:
            cleaned.set()

    assert not await signals.run_unless_signalled(work())
    assert cleaned.is_set()


async def test_work_that_ends_by_itself_is_distinguished_and_its_error_raised():
    signals = StopSignals()

    async def fail() -> None:
        raise ValueError("no")

    assert await signals.run_unless_signalled(asyncio.sleep(0))
    with pytest.raises(ValueError, match="no"):
        await signals.run_unless_signalled(fail())


async def test_a_second_signal_is_distinguished_from_the_first():
    signals = StopSignals()

    async def interrupted() -> None:
        os.kill(os.getpid(), signal.SIGINT)
        await asyncio.get_running_loop().create_future()

    assert not await signals.run_unless_signalled(interrupted())
    assert await signals.run_unless_signalled(asyncio.sleep(0))


async def test_what_keeps_it_from_being_ready_is_reported_once_and_waited_for():
    answers = [Readiness("no workers")] + [Readiness("no bucket")] * 2 + [Readiness("", ("antivirus: away",))]
    reported: list[str] = []

    await wait_until_ready(lambda: answers.pop(0), report=reported.append)

    assert reported == ["not ready yet: no bucket", "running without antivirus: away"]
    assert not answers


def test_an_ingress_that_listens_everywhere_is_asked_by_loopback():
    assert reach_url("http://0.0.0.0:8080") == "http://127.0.0.1:8080"
    assert reach_url("http://[::]:8080") == "http://[::1]:8080"
