"""The values of the sandbox port, and that the launcher takes its calls."""

import dataclasses
import inspect
import typing

import pytest

from chat_proc.sandbox.launching import SupervisedSandbox
from chat_proc.sandbox.port import ContractItem, RunRecord, RunRequest, RunResult, SandboxUnavailable
from everturn.core.errors import Unavailable
from everturn.execution.messages import Capability, LimitName, RunLimits

REQUEST = RunRequest("run-1", "turn_1", "print()", ())


def test_a_request_has_no_tools_and_files_by_default() -> None:
    assert (REQUEST.capability, REQUEST.inputs, REQUEST.profile) == (Capability(), {}, "default")
    assert REQUEST.capability.grants == ()


def test_two_requests_do_not_share_their_inputs() -> None:
    assert REQUEST.inputs is not RunRequest("run-2", "turn_1", "print()", ()).inputs


def test_a_declared_file_is_external_by_default() -> None:
    assert ContractItem("a.txt").visibility == "external"


def test_every_default_limit_is_a_limit() -> None:
    limits = dataclasses.asdict(RunLimits())

    assert limits.pop("address_space_bytes") == 0
    assert all(value > 0 for value in limits.values())


def test_a_request_and_its_result_can_not_be_changed_afterwards() -> None:
    for kind in (RunRequest, RunResult, RunRecord, ContractItem):
        assert kind.__dataclass_params__.frozen


def test_no_sandbox_is_an_unavailable_service_with_a_reason_and_a_remedy() -> None:
    error = SandboxUnavailable("Bubblewrap is not installed.", "apt-get install -y bubblewrap")

    assert isinstance(error, Unavailable)
    assert str(error) == (
        "Programs can't be run on this machine. Bubblewrap is not installed. Try: apt-get install -y bubblewrap"
    )
    assert (error.reason, error.remedy) == ("Bubblewrap is not installed.", "apt-get install -y bubblewrap")


def test_without_a_remedy_none_is_suggested() -> None:
    assert "Try" not in str(SandboxUnavailable("This machine allows no new namespaces."))


def test_the_limits_of_a_result_are_the_ones_the_wire_names() -> None:
    hint = typing.get_type_hints(RunResult)["limits_hit"]

    assert typing.get_args(hint)[0] == LimitName


@pytest.mark.parametrize("launcher", [SupervisedSandbox])
def test_a_launcher_has_a_posture_without_a_run(launcher: type) -> None:
    assert isinstance(inspect.getattr_static(launcher, "posture"), property)
