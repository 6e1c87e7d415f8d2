"""The other run on the real sandbox: it has a nonce of its own, runs until it is released, and ends with its owner."""

import pytest

from chat_proc.sandbox.port import RunError
from chat_proc.sandbox.results import build_refused
from chat_proc.selftest.exhaustion import NeighbourLost, load_ended_nonce, open_neighbour


async def test_it_runs_until_it_is_released(sandbox):
    ended = await load_ended_nonce(sandbox)
    async with open_neighbour(sandbox, "mark-of-a-test") as neighbour:
        finding = await neighbour.leave()

    assert finding.held, finding.detail
    assert len({ended, neighbour.nonce}) == 2
    assert min(len(ended), len(neighbour.nonce)) >= 32


class DeadSandbox:
    """Starts nothing."""

    def __init__(self, sandbox):
        self.posture, self.limits = sandbox.posture, sandbox.limits

    async def run(self, request, call_tool, *, stop=None):
        return build_refused(request, self.limits, RunError("sandbox_failed", "no walls", "sandbox"))


async def test_a_run_that_does_not_start_is_reported(sandbox):
    with pytest.raises(NeighbourLost, match="no walls"):
        await load_ended_nonce(DeadSandbox(sandbox))
    with pytest.raises(NeighbourLost, match="no walls"):
        async with open_neighbour(DeadSandbox(sandbox), "mark"):
            raise AssertionError
