"""A container engine for one test, which can kill it; the shared engine is not touched."""

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

START_LIMIT_S = 60.0
STOP_LIMIT_S = 60.0
LOAD_LIMIT_S = 240.0
MAX_BYTES = 3 << 30
_ASK_EVERY_S = 0.1


class OwnEngine:
    """A context manager around `dockerd`; needs root, all calls block. `folder` holds all that it has."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"unix://{self._folder / 'docker.sock'}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Returns when it answers."""
        pidfile = self._folder / "docker.pid"
        # A killed engine leaves these, and another doesn't start beside a process that nobody has waited for yet.
        for left in (pidfile, self._folder / "exec" / "containerd" / "containerd.pid"):
            left.unlink(missing_ok=True)
        with (self._folder / "docker.log").open("ab") as log:
            self._process = subprocess.Popen(
                [
                    "dockerd",
                    *("--data-root", str(self._folder / "data"), "--exec-root", str(self._folder / "exec")),
                    *("--pidfile", str(pidfile), "--host", self.address),
                    *("--bridge", "none", "--iptables=false", "--ip6tables=false"),
                    *("--shutdown-timeout", "3"),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        deadline = time.monotonic() + START_LIMIT_S
        while not self._answers():
            assert self._process.poll() is None and time.monotonic() < deadline, self.read_log()[-2000:]
            time.sleep(_ASK_EVERY_S)

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """As a crash would: the containers' own processes get no signal."""
        self._end(signal.SIGKILL)

    def load_images(self, names: Sequence[str]) -> None:
        """Copy images from the engine that everybody here uses."""
        with subprocess.Popen(["docker", "save", *names], stdout=subprocess.PIPE) as saving:
            loaded = subprocess.run(
                ["docker", "--host", self.address, "load", "--quiet"],
                stdin=saving.stdout,
                stdout=subprocess.DEVNULL,
                timeout=LOAD_LIMIT_S,
                check=False,
            )
        assert (saving.returncode, loaded.returncode) == (0, 0)

    def read_log(self) -> str:
        return (self._folder / "docker.log").read_text(encoding="utf-8", errors="replace")

    def _answers(self) -> bool:
        asked = subprocess.run(["docker", "--host", self.address, "version"], capture_output=True, check=False)
        return asked.returncode == 0

    def _end(self, number: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait(STOP_LIMIT_S)

    def __enter__(self) -> Self:
        self._folder.mkdir(parents=True)
        # In memory, because copying images into it and removing them takes most of the time.
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={MAX_BYTES}", "engine", str(self._folder)], check=True)
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        self._end_shims()
        self._unmount()
        self._folder.rmdir()

    def _end_shims(self) -> None:
        """Containers of a killed engine that no later one has taken over."""
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                with suppress(OSError):
                    if f"{self._folder}/" in (entry / "cmdline").read_text(encoding="utf-8", errors="replace"):
                        os.kill(int(entry.name), signal.SIGKILL)

    def _unmount(self) -> None:
        """The folder itself, and the layers that a killed engine leaves mounted in it."""
        mounts = Path("/proc/mounts").read_text(encoding="utf-8").splitlines()
        places = [place for line in mounts if Path(place := line.split()[1]).is_relative_to(self._folder)]
        for place in sorted(places, key=len, reverse=True):
            subprocess.run(["umount", "--lazy", place], check=False)


def find_obstacle() -> str:
    """Why no engine of its own can be started here; empty when one can."""
    if os.geteuid() != 0:
        return "only root can start an engine"
    missing = [name for name in ("dockerd", "docker") if shutil.which(name) is None]
    return f"there is no {missing[0]} here" if missing else ""
