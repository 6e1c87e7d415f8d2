"""Ctrl-C while a turn runs."""

import asyncio
import os
import signal

import pytest

from everturn_client.terminal.interrupts import Interrupts


async def test_the_first_press_is_reported_and_the_second_cancels() -> None:
    task = asyncio.ensure_future(asyncio.Event().wait())
    with Interrupts(task) as interrupts:
        os.kill(os.getpid(), signal.SIGINT)
        await asyncio.wait_for(interrupts.first.wait(), 5)
        assert not task.done()
        os.kill(os.getpid(), signal.SIGINT)

        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(task, 5)
