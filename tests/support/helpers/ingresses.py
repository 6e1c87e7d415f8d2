"""Real ingress processes that start quickly: forks, for tests that need no platform around them."""

import json
import os
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkServerContext, ForkServerProcess
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from helpers.forks import fork_service

START_LIMIT_S = 60.0
KILLED_LIMIT_S = 10.0


@dataclass
class IngressProcess:
    """One ingress; `ready` is the line it wrote when it listened."""

    process: ForkServerProcess
    ready: dict[str, Any]
    log: Path

    @property
    def url(self) -> str:
        return str(self.ready["url"])

    def alive(self) -> bool:
        return self.process.is_alive()

    def stop(self, timeout_s: float = 30) -> int:
        """SIGTERM, and its exit status."""
        if self.alive():
            self.send(signal.SIGTERM)
        return self._wait(timeout_s)

    def send(self, number: signal.Signals) -> None:
        assert self.process.pid is not None
        os.kill(self.process.pid, number)

    def kill(self) -> None:
        self.process.kill()
        self._wait(KILLED_LIMIT_S)

    def _wait(self, timeout_s: float) -> int:
        self.process.join(timeout_s)
        if self.process.exitcode is None:
            raise TimeoutError(f"the ingress did not end within {timeout_s:g} s: {self.log.read_text()[-2000:]}")
        return self.process.exitcode


def spawn_ingress(forks: ForkServerContext, folder: Path, env: Mapping[str, str]) -> IngressProcess:
    """Returns when it listens. `env` and PATH are all it has of an environment."""
    log = folder / f"ingress-{os.urandom(6).hex()}.log"
    said, says = forks.Pipe(duplex=False)
    whole = {"PATH": os.environ["PATH"], "PORT": "0", **env}
    process = fork_service(forks, "ingress", whole, log, says.fileno())
    says.close()
    line = _read_line(said)
    if not line:
        process.kill()
        process.join(KILLED_LIMIT_S)
        raise RuntimeError(f"the ingress did not start: {log.read_text() if log.exists() else ''}")
    return IngressProcess(process, json.loads(line), log)


def _read_line(pipe: Connection) -> bytes:
    """What an ingress says when it is ready; nothing where it ended or the time was over."""
    with os.fdopen(os.dup(pipe.fileno()), "rb") as file:
        found = wait([pipe], START_LIMIT_S)
        pipe.close()
        return file.readline() if found else b""


def list_objects(env: Mapping[str, str]) -> list[Path]:
    """The files of the object store that an ingress with this environment has, under its root."""
    root = Path(urlsplit(env["OBJECTS_URL"]).path)
    return sorted(path.relative_to(root) for path in root.rglob("*") if path.is_file())
