"""The command: which launchers it tries, and what it says of one that is not available."""

import json

from chat_proc.sandbox.containers import parse_address
from chat_proc.sandbox.opening import ExecutionChoice
from chat_proc.selftest.command import list_modes, run_command
from everturn.execution.profiles import load_profiles

BROKER = parse_address("unix:///nowhere/broker.sock")


def choose(mode="auto", broker=None):
    return ExecutionChoice(mode, broker, None, load_profiles(""), broker_wait_s=0.0)


def test_all_launchers_that_can_be_meant_are_tried():
    assert list_modes(choose()) == ("bubblewrap",)
    assert list_modes(choose(broker=BROKER)) == ("bubblewrap", "containers")
    assert list_modes(choose("containers")) == ("containers",)
    assert list_modes(choose("off")) == ()


async def test_an_unavailable_launcher_is_reported_but_is_no_failure(capsys):
    code = await run_command(choose(), as_json=True)

    result = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert code == 0
    assert (result["launcher"], result["unavailable"]) == ("bubblewrap", "SANDBOX_PYTHON is not set.")


async def test_people_read_a_sentence(capsys):
    await run_command(choose("containers"), as_json=False)

    assert capsys.readouterr().out.splitlines()[-1].startswith("containers: not available.")
