"""The command: which launchers it tries, and what it says of one that is not to be had."""

import json

import pytest

from chat_proc.sandbox.containers import ClientCertificate, parse_address
from chat_proc.sandbox.opening import ExecutionChoice
from chat_proc.selftest.command import list_modes, run_command
from everturn.execution.profiles import load_profiles

BROKER = parse_address("unix:///nowhere/broker.sock", ClientCertificate(None, None, None))


def choose(mode="auto", broker=None):
    return ExecutionChoice(mode, broker, None, load_profiles(""), broker_patience_s=0.0)


def test_all_launchers_that_can_be_meant_are_tried():
    assert list_modes(choose()) == ("bubblewrap",)
    assert list_modes(choose(broker=BROKER)) == ("bubblewrap", "containers")
    assert list_modes(choose("containers")) == ("containers",)
    assert list_modes(choose("off")) == ()


async def test_one_that_is_not_to_be_had_is_told_of_and_no_failure(capsys):
    code = await run_command(choose(), as_json=True)

    told = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert code == 0
    assert (told["launcher"], told["unavailable"]) == ("bubblewrap", "SANDBOX_PYTHON is not set.")


async def test_people_read_a_sentence(capsys):
    await run_command(choose("containers"), as_json=False)

    assert capsys.readouterr().out.splitlines()[-1].startswith("containers: not to be had.")


@pytest.mark.parametrize("mode", ["auto", "containers"])
async def test_containers_that_can_not_be_started_are_not_tried_and_no_failure(mode, capsys):
    code = await run_command(choose(mode, BROKER), as_json=True)

    told = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert code == 0
    assert told["launcher"] == "containers"
    assert "the broker at unix:///nowhere/broker.sock can't be reached" in told["unavailable"]
