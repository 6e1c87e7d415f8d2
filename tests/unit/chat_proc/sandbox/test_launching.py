"""One sandbox over any launcher: what can't be started is a result, and a request is checked against the profile."""

import contextlib
import dataclasses
from collections.abc import AsyncGenerator

import pytest

from chat_proc.sandbox.launching import SupervisedSandbox, UnknownProfile, build_launch
from chat_proc.sandbox.port import ContractItem, RunRequest
from chat_proc.sandbox.supervised import BootedSupervisor, SupervisorFailed
from everturn.execution.messages import GatewayCall, Posture, RunLimits, ToolReply

POSTURE = Posture("l", "r", 1, "u", "n", "m", "p", "d", "s")
LIMITS = RunLimits()
REQUEST = RunRequest("run-1", "turn_1", "print()", (ContractItem("a.txt"),))


class BrokenLauncher:
    """Has no supervisor to give."""

    def __init__(self, failure: Exception) -> None:
        self._failure = failure

    @contextlib.asynccontextmanager
    async def take(self, profile: str, run_name: str) -> AsyncGenerator[BootedSupervisor]:
        raise self._failure
        yield


async def refuse(call: GatewayCall) -> ToolReply:
    return ToolReply(call.id, False)


@pytest.mark.parametrize("failure", [UnknownProfile("no 'x'"), SupervisorFailed("no 'x'"), OSError("no 'x'")])
async def test_a_launcher_that_fails_is_a_failed_run_with_its_reason(failure):
    sandbox = SupervisedSandbox(BrokenLauncher(failure), POSTURE, LIMITS)

    result = await sandbox.run(REQUEST, refuse)

    assert (result.ok, result.error.code) == (False, "sandbox_failed")
    assert "no 'x'" in result.error.message
    assert type(failure).__name__ not in result.error.message
    assert result.report_text.startswith("The program was not run")


def test_a_launch_carries_the_profiles_limits_and_a_nonce_of_its_own():
    first, second = build_launch(REQUEST, LIMITS), build_launch(REQUEST, LIMITS)

    assert (first.limits, first.outputs, first.program) == (LIMITS, ("a.txt",), "print()")
    assert first.nonce != second.nonce


async def test_a_request_that_no_profile_allows_takes_no_supervisor():
    sandbox = SupervisedSandbox(BrokenLauncher(SupervisorFailed("taken")), POSTURE, LIMITS)

    result = await sandbox.run(dataclasses.replace(REQUEST, execution_id="../x"), refuse)

    assert result.error.code == "bad_request"
