"""The command: which launchers it tries, and what it says of one that is not available."""

import json
from typing import get_args

from chat_proc.sandbox.opening import ExecutionChoice
from chat_proc.selftest.command import list_modes, run_command
from chat_proc.settings import LauncherName
from everturn.execution.profiles import load_profiles


def choose(mode="auto"):
    return ExecutionChoice(mode, None, None, load_profiles(""), broker_wait_s=0.0)


def test_all_launchers_that_can_be_meant_are_tried():
    assert list_modes(choose()) == get_args(LauncherName)
    assert list_modes(choose("containers")) == ("containers",)
    assert list_modes(choose("off")) == ()


async def test_an_unavailable_launcher_is_reported_but_is_no_failure(capsys):
    code = await run_command(choose(), as_json=True)

    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines() if line.startswith('{"launcher"')]
    assert code == 0
    assert [line["launcher"] for line in lines] == list(get_args(LauncherName))
    assert "SANDBOX_PYTHON is not set." in [line["unavailable"] for line in lines]


async def test_people_read_a_sentence(capsys):
    await run_command(choose("containers"), as_json=False)

    assert capsys.readouterr().out.splitlines()[-1].startswith("containers: not available.")
