"""What a build machine does, with stand-ins for `make`, the engine and the package manager: only the script is real."""

import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[3] / ".ci"
LIMIT_S = 60
SYSTEM = ("bash", "cat", "dirname", "grep", "id", "mktemp", "rm", "sleep", "tail", "tee", "timeout")
COMPONENTS = (
    *("git", "curl", "setpriv", "bwrap", "clamd", "dockerd", "debootstrap"),
    *("chromium", "docker-compose", "promtool", "nginx"),
)
PACKAGES = {
    "chromium": "chromium",
    "docker-compose": "docker-compose",
    "bwrap": "bubblewrap",
    "promtool": "prometheus",
}
MAKE = """
echo "make $*" >>calls
case "$1" in {cases}
esac
"""
TESTED = '  test) echo "12 passed, 0 failed in 3.00s" ;;'


class BuildMachine:
    """A checkout with nothing but `.ci`, and a machine with few programs. All calls block."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._programs = folder / "programs"
        self._programs.mkdir()
        shutil.copytree(FOLDER, folder / ".ci")
        for name in SYSTEM:
            (self._programs / name).symlink_to(str(shutil.which(name)))
        for name in COMPONENTS:
            self.save_program(name, "exit 0")
        self.save_program("python3", "exit 0")
        self.save_program("docker", "exit 1")
        self.save_program("apt-get", 'echo "apt-get $*" >>calls')
        self.save_make(TESTED)
        (folder / ".ci" / "engine").write_text("#!/usr/bin/env bash\n")

    def save_program(self, name: str, text: str) -> None:
        program = self._programs / name
        program.write_text(f"#!{shutil.which('bash')}\n{text}\n")
        program.chmod(0o755)

    def save_make(self, cases: str) -> None:
        self.save_program("make", MAKE.format(cases=cases))

    def remove(self, name: str) -> None:
        (self._programs / name).unlink()

    def run(self, env: Mapping[str, str] | None = None) -> "subprocess.CompletedProcess[str]":
        """One run of the script."""
        return subprocess.run(
            [str(self.folder / ".ci" / "run")],
            env={"PATH": str(self._programs), **(env or {})},
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )

    def load_calls(self) -> list[str]:
        return (self.folder / "calls").read_text().splitlines()


@pytest.fixture
def machine(tmp_path: Path) -> BuildMachine:
    return BuildMachine(tmp_path)


def test_browser_and_compose_are_tested_with_all_images_in_forty_minutes(machine: BuildMachine):
    done = machine.run()

    calls = machine.load_calls()
    [test] = [call for call in calls if call.startswith("make test")]
    words = dict(word.split("=") for word in test.split()[2:])
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == "12 passed, 0 failed in 3.00s"
    assert {"make setup", "make images", "make check"} < set(calls)
    assert words["ALL"] == "1"
    assert 2300 <= int(words["LIMIT_S"]) <= 2360


@pytest.mark.parametrize("missing", list(PACKAGES))
def test_what_is_missing_is_installed_or_the_run_fails(machine: BuildMachine, missing: str):
    machine.remove(missing)

    installed = machine.run()
    machine.save_program("apt-get", "exit 100")
    failed = machine.run()

    assert installed.returncode == 0
    assert any(call.startswith("apt-get install") and PACKAGES[missing] in call for call in machine.load_calls())
    assert failed.returncode == 1
    assert "the missing packages could not be installed" in failed.stdout


@pytest.mark.parametrize("step", ["images", "check", "test"])
def test_a_step_that_fails_fails_the_run_and_the_others_still_run(machine: BuildMachine, step: str):
    machine.save_make(f"  {step}) echo 'the reason'; exit 2 ;;\n{TESTED}")

    done = machine.run()

    assert done.returncode == 1
    assert "the reason" in done.stdout
    assert {call.split()[1] for call in machine.load_calls()} == {"setup", "images", "check", "test"}


def test_a_run_over_its_limit_reports_what_ended_and_did_not_start(machine: BuildMachine):
    machine.save_make(f"  check) echo 'found by check'; exec sleep 600 ;;\n{TESTED}")

    done = machine.run({"CI_LIMIT_S": "2"})

    assert done.returncode == 1
    assert "found by check" in done.stdout
    assert "check was stopped after" in done.stdout
    assert "test was not started" in done.stdout
