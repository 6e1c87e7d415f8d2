"""Real ingress processes that start quickly: forked off a process that has imported all of it once.

Two thirds of what a start costs are imports. Everything after them is what `python -m ingress` does: settings from the
environment, servers, signals, its exit status. That a cold start works is shown by every test that starts the platform.
"""

import json
import multiprocessing
import os
import signal
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkServerContext, ForkServerProcess
from pathlib import Path
from typing import Any

START_LIMIT_S = 60.0
KILLED_LIMIT_S = 10.0
MAIN = "ingress.__main__"
DRIVERS = ("everturn.postgres.conversations", "everturn.postgres.database", "everturn.redis.wire")
"""What it imports when it has read its settings, with the libraries below: the longest part of that."""

SET_BY_IMPORTS = ("LIBRARY_PATH", "LD_LIBRARY_PATH", "MAGIC")
"""What pylibmagic sets when it is imported, and libmagic reads."""


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


def open_forks() -> ForkServerContext:
    """Where ingress processes are forked off; the imports happen with the first of them."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([MAIN, *DRIVERS])
    return context


def spawn_ingress(forks: ForkServerContext, folder: Path, env: Mapping[str, str]) -> IngressProcess:
    """Returns when it listens. `env` and PATH are all it has of an environment."""
    log = folder / f"ingress-{os.urandom(6).hex()}.log"
    said, says = forks.Pipe(duplex=False)
    process = forks.Process(target=_serve, args=({"PATH": os.environ["PATH"], "PORT": "0", **env}, str(log), says))
    process.start()
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


def _serve(env: Mapping[str, str], log: str, says: Connection) -> None:
    """In the fork: become what `python -m ingress` is."""
    with open(log, "ab", buffering=0) as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    ready_fd = os.dup(says.fileno())
    says.close()
    kept = {name: os.environ[name] for name in SET_BY_IMPORTS if name in os.environ}
    os.environ.clear()
    os.environ |= {**kept, **env, "READY_FD": str(ready_fd)}
    sys.exit(import_module(MAIN).main([]))
