"""Services that start quickly: forked off a process that has made all their imports once.

Imports are most of what a start costs. Everything after them is what `python -m MODULE` does: settings from the
environment, servers, signals, the exit status. That a cold start works is shown by the platforms of `tests/e2e`.
"""

import asyncio
import ctypes
import json
import multiprocessing
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from multiprocessing import forkserver
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext, ForkServerProcess
from pathlib import Path

from chat_proc.bounds import Bounds as WorkerBounds
from everturn.limits.token_buckets import Limit
from everturn_local.processes import KILLED_LIMIT_S, Child, Process
from ingress.bounds import Bounds as IngressBounds

DRIVERS = {
    "ingress": ("everturn.conversations.postgres", "everturn.postgres.pool", "everturn.redis_drivers"),
    "chat_proc": ("everturn_testing.models.scripted_file",),
}
"""What a service imports when it has read its settings, with the libraries below: the longest part of that.

Only what is installed: where forks are made, imports are not looked for in the tests' own folders, and missed silently.
"""

SET_BY_IMPORTS = ("LIBRARY_PATH", "LD_LIBRARY_PATH", "MAGIC")
"""What pylibmagic sets when it is imported, and libmagic reads."""

INGRESS_BOUNDS, WORKER_BOUNDS = "INGRESS_BOUNDS", "WORKER_BOUNDS"
"""For the services of a test: which of their `Bounds` differ, as JSON. A limit is a list of its numbers."""
BOUNDS = {"ingress": (INGRESS_BOUNDS, IngressBounds()), "chat_proc": (WORKER_BOUNDS, WorkerBounds())}

CHEAP = {"EMBEDDER": "hashed"}
"""Settings of forked services unless a test has others: an encoder that is a process costs each start a second."""

DIE_WITH_PARENT = 1
"""PR_SET_PDEATHSIG of prctl(2)."""


class ForkedService:
    """A forked service in the place of a Child: it leads its own process group and dies with who forked it."""

    def __init__(self, process: ForkServerProcess) -> None:
        assert process.pid is not None
        self._process = process
        self._pid = process.pid

    @property
    def pid(self) -> int:
        return self._pid

    @property
    def exit_code(self) -> int | None:
        return self._process.exitcode

    def send(self, sig: signal.Signals) -> None:
        if self.exit_code is None:
            os.kill(self._pid, sig)

    async def wait_exit(self) -> int:
        loop = asyncio.get_running_loop()
        ended = loop.create_future()
        # Each who waits needs a descriptor of its own, or the second one's place in the loop would be the first one's.
        sentinel = os.dup(self._process.sentinel)
        loop.add_reader(sentinel, lambda: ended.done() or ended.set_result(None))
        try:
            await ended
        finally:
            loop.remove_reader(sentinel)
            os.close(sentinel)
        self._process.join(KILLED_LIMIT_S)
        assert self.exit_code is not None
        return self.exit_code


class ForkingSpawn:
    """What `Platform` takes as `spawn`: services come out of forks, and all else is started as ever."""

    def __init__(self) -> None:
        self._forks = open_forks(*DRIVERS)

    def __call__(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str],
        log: Path,
        pass_fds: Sequence[int] = (),
        output: int | None = None,
    ) -> Process:
        *_, option, module = argv
        if option != "-m" or module not in DRIVERS:
            return Child(argv, env=env, log=log, pass_fds=pass_fds, output=output)
        [ready_fd] = pass_fds
        return ForkedService(fork_service(self._forks, module, {**CHEAP, **env}, log, ready_fd))


def open_forks(*modules: str) -> ForkServerContext:
    """Start the process that services are forked off; its imports go on beside the caller.

    There is one such place in a process: the first caller decides what is imported.
    """
    context = multiprocessing.get_context("forkserver")
    # As a worker does before it imports numpy, which reads them then.
    os.environ.update({"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"})
    context.set_forkserver_preload([name for module in modules for name in (f"{module}.__main__", *DRIVERS[module])])
    # Now, so that a test which watches what it leaves behind does not see it appear.
    forkserver.ensure_running()
    return context


def fork_service(
    forks: ForkServerContext, module: str, env: Mapping[str, str], log: Path, ready_fd: int
) -> ForkServerProcess:
    """Returns when it was forked. `env` is all it has of an environment; it says on `ready_fd` that it is ready."""
    with Connection(os.dup(ready_fd), readable=False) as says:
        process = forks.Process(target=_serve, args=(module, dict(env), str(log), says))
        process.start()
    return process


def _serve(module: str, env: Mapping[str, str], log: str, says: Connection) -> None:
    """In the fork: become what `python -m MODULE` is."""
    os.setsid()
    ctypes.CDLL(None).prctl(DIE_WITH_PARENT, signal.SIGKILL, 0, 0, 0)
    with open(log, "ab", buffering=0) as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    ready_fd = os.dup(says.fileno())
    says.close()
    kept = {name: os.environ[name] for name in SET_BY_IMPORTS if name in os.environ}
    os.environ.clear()
    os.environ |= {**kept, **env, "READY_FD": str(ready_fd)}
    variable, bounds = BOUNDS[module]
    differ = json.loads(env.get(variable, "{}"))
    differ = {name: Limit(*value) if isinstance(value, list) else value for name, value in differ.items()}
    sys.exit(import_module(f"{module}.__main__").main([], bounds=replace(bounds, **differ)))
