"""Which clamd `make run` starts, and the reason if it starts none."""

from pathlib import Path

import pytest

from everturn_local.servers.clamd import SCAN_OPTIONS, choose_clamd


@pytest.fixture
def here(tmp_path: Path) -> dict[str, str]:
    """The environment of a machine with the program."""
    program = tmp_path / "bin" / "clamd"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    return {"PATH": str(program.parent)}


def test_with_freshclams_signatures_these_are_used(here: dict[str, str], tmp_path: Path):
    (tmp_path / "daily.cld").write_bytes(b"signatures")

    choice = choose_clamd(here, signatures=tmp_path, programs="")

    assert (choice.program, choice.signatures) == (tmp_path / "bin" / "clamd", tmp_path)


def test_without_signatures_only_the_test_file_is_detected(here: dict[str, str], tmp_path: Path):
    choice = choose_clamd(here, signatures=tmp_path / "absent", programs="")

    assert choice.program is not None
    assert choice.signatures is None
    assert "only the EICAR test file" in choice.why


@pytest.mark.parametrize(
    ("env", "fate"),
    [({}, "accepted unscanned"), ({"APP_AV_SCAN": "1"}, "rejected"), ({"EVERTURN_MODE": "production"}, "rejected")],
)
def test_without_clamd_the_choice_explains_what_happens_to_uploads(env: dict[str, str], fate: str, tmp_path: Path):
    choice = choose_clamd({"PATH": str(tmp_path), **env}, programs="")

    assert choice.program is None
    assert choice.why.endswith(f"uploads are {fate}")


@pytest.mark.parametrize("env", [{"CLAMD_URL": "tcp://elsewhere:3310"}, {"APP_AV_SCAN": "0"}])
def test_no_antivirus_is_started_if_the_operator_chose_one(here: dict[str, str], env: dict[str, str]):
    choice = choose_clamd(here | env, programs="")

    assert choice.program is None
    assert next(iter(env)) in choice.why


def test_the_clamd_of_the_containers_scans_as_the_embedded_one():
    lines = Path("deploy/clamav/clamd.conf").read_text().splitlines()
    configured = dict(line.split(" ", 1) for line in lines if line and not line.startswith("#"))

    assert {name: configured.get(name) for name in SCAN_OPTIONS} == SCAN_OPTIONS
