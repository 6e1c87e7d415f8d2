"""One child process: start, signals, stop, waiting for its exit; and the record with which a later run finds it."""

import asyncio
import json
import os
import select
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

StopStep = tuple[signal.Signals, float]
"""A signal and how long (seconds) to wait for the exit before the next step."""

KILLED_LIMIT_S = 10.0


class Process(Protocol):
    """A started process, which leads its own process group."""

    @property
    def pid(self) -> int: ...

    @property
    def exit_code(self) -> int | None:
        """None while it runs; negative for the signal that ended it."""
        ...

    def send(self, sig: signal.Signals) -> None:
        """A process that is already gone is no error."""
        ...

    async def wait_exit(self) -> int: ...


class Spawn(Protocol):
    """Starts a process; see Child for its parameters."""

    def __call__(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str],
        log: Path,
        pass_fds: Sequence[int] = (),
        output: int | None = None,
    ) -> Process: ...


class Child:
    """A started process. Create it in the main thread: the parent-death signal follows the thread that forked."""

    def __init__(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str],
        log: Path,
        folder: Path | None = None,
        pass_fds: Sequence[int] = (),
        output: int | None = None,
    ) -> None:
        """`log` receives standard output and error, appended. The child leads its own process group.

        It runs in `folder`, by default the current one. `output` is a descriptor that receives standard output instead.
        """
        with log.open("ab") as log_file:
            self._process = subprocess.Popen(
                argv,
                cwd=folder,
                env=dict(env),
                stdin=subprocess.DEVNULL,
                stdout=log_file if output is None else output,
                stderr=log_file,
                pass_fds=pass_fds,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """None while it runs; negative for the signal that ended it."""
        return self._process.poll()

    def send(self, sig: signal.Signals) -> None:
        """A process that is already gone is no error."""
        self._process.send_signal(sig)

    def stop(self, steps: Sequence[StopStep]) -> int:
        """Send the signals of `steps` in turn until it exits; finally kill its whole group. Blocks."""
        for sig, limit_s in steps:
            self.send(sig)
            with suppress(subprocess.TimeoutExpired):
                return self._process.wait(limit_s)
        kill_group(self.pid)
        return self._process.wait(KILLED_LIMIT_S)

    async def wait_exit(self) -> int:
        """Wait without a thread: the process file descriptor becomes readable when the process ends."""
        if self.exit_code is None:
            await _wait_readable_pidfd(self.pid)
        return self._process.wait(KILLED_LIMIT_S)


async def _wait_readable_pidfd(pid: int) -> None:
    loop = asyncio.get_running_loop()
    ended = loop.create_future()
    descriptor = os.pidfd_open(pid)
    loop.add_reader(descriptor, lambda: ended.done() or ended.set_result(None))
    try:
        await ended
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)


def kill_group(pid: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


@dataclass(frozen=True, slots=True)
class ProcessRecord:
    """Identifies a process even if its number is reused: boot, number, and start time in clock ticks since boot."""

    boot: str
    pid: int
    started: int


def try_record(pid: int) -> ProcessRecord | None:
    """The record of a process; None when it does not run."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    after_name = status.rpartition(")")[2].split()
    if after_name[0] in "ZX":
        return None
    return ProcessRecord(boot=load_boot_id(), pid=pid, started=int(after_name[19]))


def load_boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def save_record(folder: Path, name: str, pid: int) -> None:
    record = try_record(pid)
    if record is not None:
        text = json.dumps({"boot": record.boot, "pid": record.pid, "started": record.started})
        (folder / f"{name}.json").write_text(text)


def remove_record(folder: Path, name: str) -> None:
    (folder / f"{name}.json").unlink(missing_ok=True)


def run_leftover_cleanup(folder: Path) -> list[str]:
    """Kill the recorded processes that still run, with their groups, and wait for their end; returns their names."""
    ended: list[str] = []
    for path in sorted(folder.glob("*.json")):
        record = _try_load_record(path)
        if record is not None and try_record(record.pid) == record:
            kill_group(record.pid)
            _wait_ended(record)
            ended.append(path.stem)
        path.unlink()
    return ended


def _wait_ended(record: ProcessRecord) -> None:
    """A killed process can run for a moment, and still write to the files that its successor opens."""
    try:
        descriptor = os.pidfd_open(record.pid)
    except ProcessLookupError:
        return
    try:
        if try_record(record.pid) == record:
            select.select([descriptor], [], [], KILLED_LIMIT_S)
    finally:
        os.close(descriptor)


def _try_load_record(path: Path) -> ProcessRecord | None:
    """Load a record; None for one that was truncated while it was written."""
    try:
        return ProcessRecord(**json.loads(path.read_text()))
    except (ValueError, TypeError):
        return None
