"""How the build machine's engine is started: what a killed one left must not keep the next one from starting.

Starts an engine of its own four times, apart from the machine's, which takes some seconds: only a real one shows it.
"""

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[3] / ".ci" / "engine"
LIMIT_S = 120


class OwnEngine:
    """The script with an engine under a folder of its own."""

    def __init__(self, root: Path, notes: str = "notes") -> None:
        self.root = root
        self.notes = root / notes
        self.notes.mkdir()

    def run(self, command: str) -> subprocess.CompletedProcess[str]:
        environment = {"PATH": os.environ["PATH"], "ENGINE_ROOT": str(self.root)}
        argv = [str(SCRIPT), command, str(self.notes)]
        return subprocess.run(argv, env=environment, capture_output=True, text=True, timeout=LIMIT_S, check=False)

    @property
    def pid(self) -> int:
        return int((self.root / "docker.pid").read_text())

    @property
    def containerd_file(self) -> Path:
        return self.root / "run" / "containerd" / "containerd.pid"


@pytest.fixture
def engine() -> Iterator[OwnEngine]:
    if os.geteuid() != 0 or shutil.which("dockerd") is None:
        if os.environ.get("CI") == "true":
            pytest.fail("a container engine and root are needed here")
        pytest.skip("no dockerd, or not root")
    # Not under pytest's folder: the path of a socket may have 107 bytes only.
    with tempfile.TemporaryDirectory(prefix="engine-") as folder:
        own = OwnEngine(Path(folder))
        yield own
        own.run("stop")
        subprocess.run(["umount", str(own.root / "data")], capture_output=True, check=False)


def read_state(pid: int) -> str:
    """The name of a process, empty when there is none or only its exit status is left."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return ""
    fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    return "" if fields["State"].startswith("Z") else fields["Name"]


def kill_and_wait(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
    deadline = time.monotonic() + LIMIT_S
    while read_state(pid) and time.monotonic() < deadline:
        time.sleep(0.01)


def test_a_killed_engine_restarts_and_stops_with_its_containers(engine: OwnEngine):
    started = engine.run("start")
    assert started.returncode == 0, started.stdout

    kill_and_wait(engine.pid)
    again = engine.run("start")
    assert (again.returncode, read_state(engine.pid)) == (0, "dockerd"), again.stdout

    # Both are killed, and their numbers are another's by now.
    containerd = int(engine.containerd_file.read_text())
    kill_and_wait(engine.pid)
    kill_and_wait(containerd)
    with subprocess.Popen(["sleep", "600"]) as stranger:
        (engine.root / "docker.pid").write_text(str(stranger.pid))
        engine.containerd_file.write_text(str(stranger.pid))
        third = engine.run("start")
        pids = [engine.pid, int(engine.containerd_file.read_text())]
        assert [read_state(pid) for pid in pids] == ["dockerd", "containerd"], third.stdout

        engine.run("stop")

        assert [read_state(pid) for pid in pids] == ["", ""]
        assert stranger.poll() is None
        stranger.kill()


def test_one_that_answers_is_used_and_not_stopped(engine: OwnEngine):
    engine.run("start")
    pid = engine.pid
    second = OwnEngine(engine.root, notes="second")

    said = second.run("start").stdout
    second.run("stop")

    assert "one answers already" in said
    assert read_state(pid) == "dockerd"


def test_an_engine_that_cannot_start_is_reported_with_its_log(engine: OwnEngine):
    (engine.root / "data").write_text("a file where a folder belongs")

    failed = engine.run("start")

    assert failed.returncode == 1
    assert "it does not start" in failed.stdout
    assert "data" in failed.stdout
