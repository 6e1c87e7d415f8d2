"""One service as a process: starts it, waits for its ready line, stops it."""

import asyncio
import json
import os
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from everturn.core.errors import EverturnError
from everturn_local.privileges import build_child_prefix
from everturn_local.processes import KILLED_LIMIT_S, Child, Process, Spawn, kill_group, remove_record, save_record
from everturn_local.supervision.logs import load_tail, save_rotated

READY_LIMIT_S = 180.0
"""Rarely more than ten seconds are needed. Killing slow services on a busy machine makes it busier."""
GATED_READY_LIMIT_S = 300.0
"""With EXECUTION_GATE=battery a service runs the escape battery first: more than a minute on a busy machine."""
STOP_LIMIT_S = 90.0
"""As long as a worker needs at most: DRAIN_TIMEOUT_S, and 60 s to end its turns and to close its bundles."""
MAX_READY_BYTES = 16 * 1024

ReadyReport = Mapping[str, str]
"""A service's ready report: `url`, `model`, `why`, `sandbox`, `antivirus` and so on."""


class ServiceStartError(EverturnError):
    """A service did not become ready."""


@dataclass(frozen=True, slots=True)
class ServiceSpec:
    """What to start. `env` is the whole environment. The ready line arrives on the descriptor READY_FD, or on
    stdout."""

    name: str
    argv: Sequence[str]
    env: Mapping[str, str]
    log: Path
    ready_on_stdout: bool = False


class ServiceProcess:
    """Owns the process of one service; start and stop can alternate. `spawn` starts the process."""

    def __init__(self, spec: ServiceSpec, *, records: Path, spawn: Spawn = Child) -> None:
        self.spec = spec
        self.report: ReadyReport = {}
        self._records = records
        self._spawn_process = spawn
        self._child: Process | None = None
        self._last_exit = 0
        self._log_start = 0

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def pid(self) -> int | None:
        return self._child.pid if self._child is not None and self._child.exit_code is None else None

    async def start(self, *, extra_env: Mapping[str, str] | None = None) -> ReadyReport:
        """Start and wait for the ready line. Raises ServiceStartError with the end of its log."""
        save_rotated(self.spec.log)
        self._log_start = self.spec.log.stat().st_size if self.spec.log.exists() else 0
        reading, writing = os.pipe()
        try:
            self._spawn(writing, extra_env or {})
        except BaseException:
            os.close(reading)
            # The process may have started without its record.
            await self.stop(limit_s=0)
            raise
        finally:
            os.close(writing)
        try:
            self.report = await self._load_report(reading)
        except BaseException:
            # Also on cancellation: an abandoned service must not keep running.
            await self.stop(limit_s=0)
            raise
        return self.report

    async def wait_exit(self) -> int:
        """Exit code of the running process or otherwise of the last one, negative for a signal; 0 when none was
        started."""
        if self._child is None:
            return self._last_exit
        code = await self._child.wait_exit()
        kill_group(self._child.pid)
        return code

    async def stop(self, *, limit_s: float = STOP_LIMIT_S) -> None:
        """Send SIGTERM, then after the limit SIGKILL to its whole group. No error when it isn't running."""
        child = self._child
        if child is None:
            return
        child.send(signal.SIGTERM if limit_s > 0 else signal.SIGKILL)
        with suppress(TimeoutError):
            await asyncio.wait_for(child.wait_exit(), limit_s or KILLED_LIMIT_S)
        kill_group(child.pid)
        self._last_exit = await asyncio.wait_for(child.wait_exit(), KILLED_LIMIT_S)
        remove_record(self._records, self.name)
        self._child = None

    def send(self, sig: signal.Signals) -> None:
        """Send a signal. No error when it isn't running."""
        if self._child is not None:
            self._child.send(sig)

    def _spawn(self, ready_fd: int, extra_env: Mapping[str, str]) -> None:
        env = {**self.spec.env, **extra_env}
        argv = [*build_child_prefix(death_signal="KILL"), *self.spec.argv]
        if self.spec.ready_on_stdout:
            self._child = self._spawn_process(argv, env=env, log=self.spec.log, output=ready_fd)
        else:
            env["READY_FD"] = str(ready_fd)
            self._child = self._spawn_process(argv, env=env, log=self.spec.log, pass_fds=[ready_fd])
        save_record(self._records, self.name, self._child.pid)

    async def _load_report(self, reading: int) -> ReadyReport:
        try:
            line = await asyncio.wait_for(_load_line(reading), find_ready_limit_s(self.spec.env))
            return parse_ready_line(line)
        except TimeoutError as error:
            raise self._build_error(
                f"it did not report readiness within {find_ready_limit_s(self.spec.env):.0f} s"
            ) from error
        except ValueError as error:
            raise self._build_error(str(error)) from error

    def _build_error(self, reason: str) -> ServiceStartError:
        tail = "\n".join(load_tail(self.spec.log, start=self._log_start))
        return ServiceStartError(f"{self.name}: {reason}. The end of {self.spec.log}:\n{tail}")


async def _load_line(descriptor: int) -> bytes:
    """Read one line, or less when the writer closes its end. Takes ownership of the descriptor."""
    reader = asyncio.StreamReader(limit=MAX_READY_BYTES)
    loop = asyncio.get_running_loop()
    transport, _ = await loop.connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(descriptor, "rb")
    )
    try:
        return await reader.readline()
    finally:
        transport.close()


def parse_ready_line(line: bytes) -> ReadyReport:
    """Parse `{"ready": true, "model": "...", ...}` with text values. Raises ValueError with the reason."""
    if not line:
        raise ValueError("it ended before it was ready")
    entry = json.loads(line)
    if not isinstance(entry, dict):
        raise ValueError(f"its ready line is not an object: {line[:200]!r}")
    fields = cast("dict[str, object]", entry)
    if fields.pop("ready", None) is not True:
        raise ValueError(f"it did not report that it is ready: {line[:200]!r}")
    return {name: str(value) for name, value in fields.items()}


def find_ready_limit_s(env: Mapping[str, str]) -> float:
    """The maximum time until a service must report that it is ready."""
    return GATED_READY_LIMIT_S if env.get("EXECUTION_GATE", "").strip() == "battery" else READY_LIMIT_S
