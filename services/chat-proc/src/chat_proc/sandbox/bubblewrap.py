"""The launcher for machines without a container engine: a supervisor process per run, which starts bubblewrap."""

import asyncio
import contextlib
import os
import secrets
import shutil
import sys
import tempfile
from collections.abc import AsyncGenerator, Generator, Mapping, Sequence
from pathlib import Path
from typing import Final

from chat_proc.sandbox.interpreter import load_interpreter
from chat_proc.sandbox.launching import TRIAL, SupervisedSandbox, UnknownProfile
from chat_proc.sandbox.obstacles import build_missing, check_version, explain_failure, load_host_settings
from chat_proc.sandbox.processes import open_supervisor
from chat_proc.sandbox.supervised import BootedSupervisor, SupervisorFailed
from everturn.wire.execution import Boot, Interpreter, UidRange
from everturn.wire.profiles import DEFAULT_PROFILE, ExecutionProfile

SANDBOX_UIDS: Final = UidRange(20_000, 20_999)
_SUPERVISOR: Final = (sys.executable, "-I", "-m", "exec_supervisor")
_VERSION_TIMEOUT_S: Final = 10.0
# The run's folder must be one that the dropped user can reach; the first that fits is taken.
_RUN_PARENTS: Final = ("/run", "/tmp")  # noqa: S108 - a folder of its own with a random name is made below


async def open_bubblewrap_sandbox(
    python: Path,
    profiles: Mapping[str, ExecutionProfile],
    *,
    uids: UidRange = SANDBOX_UIDS,
    supervisor: Sequence[str] = _SUPERVISOR,
) -> SupervisedSandbox:
    """A launcher that a boot has shown to work. Raises SandboxUnavailable with the reason and a remedy.

    `python` belongs to an environment that has the executor and the scientific libraries. `supervisor` is the command
    of a supervisor process. As root, each run has one of `uids`; otherwise all run as the user that we are.
    """
    bwrap = await _load_bwrap()
    interpreter = await load_interpreter(python)
    launcher = BubblewrapLauncher(bwrap, interpreter, profiles, uids, supervisor)
    try:
        async with launcher.take(DEFAULT_PROFILE, TRIAL) as supervisor_here:
            return SupervisedSandbox(launcher, supervisor_here.posture, supervisor_here.limits)
    except (OSError, SupervisorFailed) as error:
        raise explain_failure(str(error), load_host_settings()) from error


async def _load_bwrap() -> str:
    bwrap = shutil.which("bwrap")
    if bwrap is None:
        raise build_missing()
    process = await asyncio.create_subprocess_exec(bwrap, "--version", stdout=asyncio.subprocess.PIPE)
    async with asyncio.timeout(_VERSION_TIMEOUT_S):
        answer, _ = await process.communicate()
    check_version(answer.decode())
    return bwrap


class BubblewrapLauncher:
    """A supervisor process for each run. It holds no state between runs."""

    def __init__(
        self,
        bwrap: str,
        interpreter: Interpreter,
        profiles: Mapping[str, ExecutionProfile],
        uids: UidRange,
        supervisor: Sequence[str],
    ) -> None:
        self._bwrap = bwrap
        self._interpreter = interpreter
        self._profiles = profiles
        self._uids = uids
        self._supervisor = supervisor

    @contextlib.asynccontextmanager
    async def take(self, profile: str, run_name: str) -> AsyncGenerator[BootedSupervisor]:
        del run_name  # nothing of a process carries labels
        wanted = self._profiles.get(profile)
        if wanted is None:
            raise UnknownProfile(f"there is no execution profile {profile!r}")
        with _run_dir() as run_dir:
            boot = Boot(wanted.limits, self._interpreter, self._bwrap, run_dir, self._uids, wanted.preload)
            async with open_supervisor(self._supervisor, boot) as supervisor:
                yield supervisor


@contextlib.contextmanager
def _run_dir() -> Generator[str]:
    """Where the supervisor makes the run's folder. It also removes it; if it was killed, what it left is removed here.

    A folder made here would stay if we were killed before the supervisor knew of it.
    """
    run_dir = os.path.join(_choose_parent(), f"everturn-run-{secrets.token_hex(8)}")
    try:
        yield run_dir
    finally:
        with contextlib.suppress(FileNotFoundError):
            for folder, _, names in os.walk(run_dir, topdown=False):
                for name in names:
                    os.unlink(os.path.join(folder, name))
                os.rmdir(folder)


def _choose_parent() -> str:
    for parent in _RUN_PARENTS:
        if os.path.isdir(parent) and os.access(parent, os.W_OK | os.X_OK):
            return parent
    return tempfile.gettempdir()
