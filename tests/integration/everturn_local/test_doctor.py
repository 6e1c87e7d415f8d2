"""`make doctor`."""

import socket
from pathlib import Path

import pytest

from everturn_local.doctor import (
    Finding,
    build_finding,
    inspect_disk,
    inspect_escapes,
    inspect_home,
    inspect_objects,
    inspect_port,
    inspect_postgres,
    inspect_python,
    inspect_redis,
    render_findings,
    run_doctor,
)
from everturn_local.escapes import Escapes
from everturn_local.home import run_lock, save_home
from everturn_local.ports import LOOPBACK
from everturn_local.settings import LocalSettings


@pytest.fixture
def settings(tmp_path: Path) -> LocalSettings:
    return LocalSettings(everturn_home=tmp_path / "home", port=0)


def test_walls_that_did_not_hold_are_a_problem_and_absent_ones_are_none():
    held = build_finding(Escapes("bubblewrap", 2, 2, ("network 2 of 2",)))
    missed = build_finding(Escapes("containers", 1, 2, ("NOT DENIED network: connect (it got x)",)))
    absent = build_finding(Escapes("containers", unavailable="No engine.", remedy="make images"))

    assert (held.remedy, absent.remedy) == ("", "")
    assert missed.remedy
    assert "make images" in absent.fact
    assert "NOT DENIED network" in render_findings([held, missed, absent])


@pytest.mark.slow
def test_without_a_running_engine_containers_are_not_tried_and_no_problem(tmp_path: Path):
    settings = {"EXECUTION_MODE": "containers", "DOCKER_HOST": f"unix://{tmp_path}/no-engine.sock"}

    [containers] = inspect_escapes(settings)

    assert containers.fact.startswith("containers: not tried.")
    assert "engine does not respond" in containers.fact
    assert (containers.remedy, containers.rows) == ("", ())


def test_a_problem_comes_with_what_to_do():
    page = render_findings([Finding("disk", "plenty"), Finding("port", "8080 is taken", "PORT=8090 make run")])

    assert page.splitlines()[0].startswith("ok")
    assert "PROBLEM" in page
    assert page.splitlines()[2].endswith("-> PORT=8090 make run")


def test_the_page_has_a_line_for_every_check(settings: LocalSettings, capsys: pytest.CaptureFixture[str]):
    problems = run_doctor(settings, environment={}, walls=False)

    page = capsys.readouterr().out
    assert page.count("PROBLEM") == problems
    for name in ("python", "postgres", "redis", "setpriv", "git", "sandbox", "lock", "disk", "port", "home"):
        assert f" {name} " in page


@pytest.mark.parametrize("inspect", [inspect_python, inspect_postgres, inspect_redis, inspect_disk, inspect_home])
def test_what_setup_installed_is_well(inspect: object, settings: LocalSettings):
    assert callable(inspect)
    assert inspect(settings).remedy == ""


def test_a_taken_port_is_a_problem_unless_we_hold_it_ourselves(settings: LocalSettings):
    with socket.create_server((LOOPBACK, 0)) as listener:
        taken = settings.model_copy(update={"port": listener.getsockname()[1]})
        before = inspect_port(taken)
        with run_lock(save_home(settings.everturn_home)):
            during = inspect_port(taken)

    assert before.remedy
    assert not during.remedy


def test_an_open_home_is_a_problem(settings: LocalSettings):
    settings.everturn_home.mkdir()
    settings.everturn_home.chmod(0o755)

    assert "chmod 700" in inspect_home(settings).remedy


def test_the_file_store_is_printed_and_checked(settings: LocalSettings, tmp_path: Path):
    folder = settings.model_copy(update={"objects_url": tmp_path.joinpath("kept").as_uri()})
    absent = settings.model_copy(update={"objects_url": "s3://b?endpoint=http://127.0.0.1:9&region=x&timeout=2"})
    wrong = settings.model_copy(update={"objects_url": "s3://key:hidden-word@b"})

    assert inspect_objects(settings).fact.startswith("files in ")
    assert inspect_objects(folder).remedy == ""
    assert "keep-files-in-s3" in inspect_objects(absent).remedy
    assert "hidden-word" not in str(inspect_objects(wrong))
