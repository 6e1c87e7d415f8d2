import asyncio
import os
import signal

import pytest

from chat_proc.worker.worker import Worker
from everturn.core.errors import Unavailable


class Part:
    """A part of the worker that runs until it is cancelled, or until it is drained."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.ended = asyncio.Event()
        self.hands_over = True
        self.obeys = True

    async def run(self) -> None:
        self.calls.append("run")
        try:
            await self.ended.wait()
        except asyncio.CancelledError:
            self.calls.append("cancelled")
            raise

    async def wait_published(self) -> None:
        pass

    def drain(self) -> None:
        self.calls.append("drain")
        if self.hands_over:
            self.ended.set()

    async def close(self) -> None:
        self.calls.append("close")

    def log_turns(self) -> None:
        self.calls.append("log")

    def interrupt(self) -> None:
        self.calls.append("interrupt")
        if self.obeys:
            self.ended.set()


class Desk:
    def __init__(self, *, deadline_s: float = 8.1) -> None:
        self.claiming, self.heartbeat, self.sweeper, self.indexer = Part(), Part(), Part(), Part()
        self.parts = self.claiming, self.heartbeat, self.sweeper, self.indexer
        self.presence, self.retention, self.trimmer, self.bundles = Part(), Part(), Part(), Part()
        self.operations, self.watch = Part(), Part()
        self.rest = {
            "presence": self.presence,
            "retention": self.retention,
            "trimmer": self.trimmer,
            "bundles": self.bundles,
            "operations": self.operations,
            "watch": self.watch,
        }
        self.worker = Worker(*self.parts, **self.rest, deadline_s=deadline_s, margin_s=8.0)  # type: ignore[arg-type]
        self.ready = asyncio.Event()

    async def run(self, stop) -> None:
        task = asyncio.create_task(self.worker.run(self.ready.set))
        await asyncio.wait_for(self.ready.wait(), 5)
        await asyncio.sleep(0)
        stop()
        await asyncio.wait_for(task, 5)


async def test_a_drain_lets_turns_hand_over_and_ends() -> None:
    desk = Desk()

    await desk.run(desk.worker.stop)

    assert desk.claiming.calls == ["run", "drain", "interrupt"]
    assert desk.heartbeat.calls == ["run", "cancelled"]
    assert desk.sweeper.calls == ["run", "cancelled"]
    assert desk.indexer.calls == ["run", "drain"]
    assert desk.presence.calls == ["run", "cancelled"]
    assert desk.retention.calls == ["run", "cancelled"]
    assert desk.watch.calls == ["run", "cancelled", "close"]


async def test_what_does_not_hand_over_in_time_is_cut_short() -> None:
    desk = Desk()
    desk.claiming.hands_over = False

    await desk.run(desk.worker.stop)

    assert desk.claiming.calls == ["run", "drain", "interrupt"]


async def test_a_long_index_job_is_left_to_another_worker() -> None:
    desk = Desk()
    desk.indexer.hands_over = False

    await desk.run(desk.worker.stop)

    assert desk.indexer.calls == ["run", "drain", "cancelled"]


async def test_what_does_not_even_obey_is_cancelled() -> None:
    desk = Desk()
    desk.claiming.hands_over = desk.claiming.obeys = False
    desk.worker = Worker(*desk.parts, **desk.rest, deadline_s=0.1, margin_s=0.05)  # type: ignore[arg-type]

    await desk.run(desk.worker.stop)

    assert desk.claiming.calls == ["run", "drain", "interrupt", "cancelled"]


async def test_a_sigterm_begins_the_drain() -> None:
    desk = Desk()

    await desk.run(lambda: os.kill(os.getpid(), signal.SIGTERM))

    assert "drain" in desk.claiming.calls


async def test_a_sigusr1_logs_the_turns() -> None:
    desk = Desk()

    def ask_and_stop() -> None:
        os.kill(os.getpid(), signal.SIGUSR1)
        asyncio.get_running_loop().call_later(0.05, desk.worker.stop)

    await desk.run(ask_and_stop)

    assert desk.heartbeat.calls == ["run", "log", "cancelled"]


async def test_turns_are_claimed_from_the_start_until_the_drain() -> None:
    desk = Desk()

    with pytest.raises(Unavailable, match="Starting"):
        await desk.worker.check_claims()
    running = asyncio.create_task(desk.worker.run(desk.ready.set))
    await desk.ready.wait()
    await desk.worker.check_claims()
    desk.worker.stop()
    with pytest.raises(Unavailable, match="Draining"):
        await desk.worker.check_claims()

    await running
