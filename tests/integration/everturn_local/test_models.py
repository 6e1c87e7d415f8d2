"""`make models`."""

import os

import pytest

from everturn_local.models import run_models

ENVIRONMENT = {"PATH": os.defpath}


def test_without_a_command_it_lists_them(capfd: pytest.CaptureFixture[str]) -> None:
    status = run_models([], environment=ENVIRONMENT)

    printed = capfd.readouterr()
    assert status == 0
    assert "check" in printed.out and "list" in printed.out
    assert 'make models DO="check' in printed.err


def test_a_command_has_the_variables_of_the_run_and_passes_its_status_on(capfd: pytest.CaptureFixture[str]) -> None:
    status = run_models(["check"], environment={**ENVIRONMENT, "EVERTURN_MODEL": "offline"})

    printed = capfd.readouterr()
    assert (status, printed.out) == (2, "")
    assert (
        "There is nothing to check. offline is the built-in demo, which can't be checked (EVERTURN_MODEL=offline)."
        in printed.err
    )
