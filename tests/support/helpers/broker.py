"""A broker of its own for a test, on any engine; it can be killed and started again at the same socket."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Self

from helpers.waiting import read_line

READY_LIMIT_S = 30.0
STOP_LIMIT_S = 30.0
COMMAND = (sys.executable, "-I", "-m", "exec_supervisor", "broker")


class OwnBroker:
    """A context manager; all calls block. `label` is on all that its engine holds for it, over its restarts."""

    def __init__(self, folder: Path, *, engine: str = "", profiles: str = "", **settings: str) -> None:
        self.socket = folder / "broker.sock"
        self._log = folder / "broker.log"
        named = {"BROKER_SOCKET": str(self.socket), "DOCKER_HOST": engine, "EXECUTION_PROFILES": profiles} | settings
        self._env = {"PATH": os.environ["PATH"], **{name: value for name, value in named.items() if value}}
        self._process: subprocess.Popen[bytes] | None = None
        self._id = ""

    @property
    def url(self) -> str:
        return f"unix://{self.socket}"

    @property
    def label(self) -> str:
        return f"everturn.broker={self._id}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def read_log(self) -> str:
        return self._log.read_text(encoding="utf-8", errors="replace")

    def start(self) -> None:
        """Returns when it serves."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                COMMAND, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, env=self._env
            )
        assert self._process.stdout is not None
        line = read_line(self._process.stdout, READY_LIMIT_S)
        assert line, self.read_log()[-2000:]
        self._id = str(json.loads(line)["broker"])

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def _end(self, number: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait(STOP_LIMIT_S)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
