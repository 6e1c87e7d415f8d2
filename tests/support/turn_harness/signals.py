"""What a person says while a turn runs, at a moment that the test chooses."""

import asyncio

import pytest

from chat_proc.turn.inbox import TurnInbox
from chat_proc.worker.runner import TurnRunner
from everturn.timeline.turns import SignalKind, SignalState
from everturn.turns.model import Claim, Commit
from everturn_testing.models.scripted_model import Pause, Say, Script
from turn_harness.harness import Bench, BenchWorker, until

FOLLOWUP, STEER, CANCEL = SignalKind.FOLLOWUP, SignalKind.STEER, SignalKind.CANCEL


def states(bench: Bench) -> list[SignalState]:
    return [row.signal.state for row in bench.platform.signals.values()]


def hanging(*said: str) -> Script:
    """Says this and then nothing for ever."""
    return [*(Say(text) for text in said), Pause(asyncio.Event())]


async def interrupt(
    bench: Bench, *signals: tuple[SignalKind, str], when: int = 1, worker: BenchWorker | None = None
) -> None:
    """Start a worker, say these once the model has hung in its call number `when`, and let it end."""
    task = asyncio.create_task((worker or bench.hire()).work())
    await until(lambda: len(bench.model.requests) == when and bench.model.unfinished == 1)
    for _ in range(200):
        await asyncio.sleep(0)
    for kind, text in signals:
        await bench.signal(kind, text)
    await task


def withdraw_when_read(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Withdraw each steer and cancel as soon as it has ended a call."""
    wait = TurnInbox.wait_for_control

    async def wait_and_withdraw(inbox: TurnInbox) -> None:
        await wait(inbox)
        for waiting in bench.waiting_signals():
            await bench.retract(waiting)

    monkeypatch.setattr(TurnInbox, "wait_for_control", wait_and_withdraw)


def say_before_close(bench: Bench, worker: BenchWorker, *signals: tuple[SignalKind, str]) -> None:
    """Say these once, just before the first terminal commit is written."""
    left = list(signals)

    async def hook(commit: Commit) -> None:
        if commit.close is not None:
            while left:
                await bench.signal(*left.pop(0))

    worker.timelines.before_commit = hook


async def run_claimed_for_cancel(bench: Bench) -> None:
    """Claim the turn as the control lane does."""
    worker = bench.hire()
    build_runner = worker.build_runner

    def claim_for_cancel(claim: Claim, requested_at_s: float) -> TurnRunner:
        runner = build_runner(claim, requested_at_s)
        runner.request_handover()
        return runner

    worker.build_runner = claim_for_cancel
    await worker.run_one()
