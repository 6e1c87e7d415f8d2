"""The launcher for machines without a container engine: a local supervisor for each run, which starts bubblewrap.

It explains what is missing on a machine that can't run it.
"""

import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from chat_proc.sandbox.launching import SupervisedSandbox
from chat_proc.sandbox.local_supervisor import SANDBOX_UIDS, SUPERVISOR, open_local_sandbox
from chat_proc.sandbox.port import SandboxUnavailable
from chat_proc.sandbox.supervised import SupervisorFailed
from everturn.core.subprocesses import run_command
from everturn.execution.messages import UidRange
from everturn.execution.profiles import ExecutionProfile

_VERSION_TIMEOUT_S: Final = 10.0

MIN_VERSION: Final = (0, 8)
"""The first bubblewrap with `--disable-userns`."""

_CLONE_SWITCH: Final = "kernel/unprivileged_userns_clone"
_APPARMOR_SWITCH: Final = "kernel/apparmor_restrict_unprivileged_userns"
_MAX_NAMESPACES: Final = "user/max_user_namespaces"
_SETTINGS: Final = (_CLONE_SWITCH, _APPARMOR_SWITCH, _MAX_NAMESPACES)


async def open_bubblewrap_sandbox(
    python: Path,
    profiles: Mapping[str, ExecutionProfile],
    uids: UidRange = SANDBOX_UIDS,
    *,
    supervisor: Sequence[str] = (*SUPERVISOR, "bubblewrap"),
) -> SupervisedSandbox:
    """Open the launcher, as `open_local_sandbox` does. Raises SandboxUnavailable with the reason and a remedy."""
    bwrap = await load_bwrap()
    try:
        return await open_local_sandbox(bwrap, python, profiles, uids, supervisor)
    except (OSError, SupervisorFailed) as error:
        raise explain_failure(str(error), load_host_settings()) from error


async def load_bwrap(*, timeout_s: float = _VERSION_TIMEOUT_S) -> str:
    """The path of bubblewrap. Raises SandboxUnavailable if it is missing, does not run or answer, or is too old."""
    bwrap = shutil.which("bwrap")
    if bwrap is None:
        raise build_missing()
    try:
        _, answer, _ = await run_command((bwrap, "--version"), timeout_s=timeout_s)
    except TimeoutError as error:
        raise SandboxUnavailable(f"{bwrap} --version did not answer within {timeout_s:g} s.") from error
    except OSError as error:
        raise SandboxUnavailable(f"{bwrap} does not run: {error.strerror}.") from error
    check_version(answer.decode(errors="replace"))
    return bwrap


@dataclass(frozen=True, slots=True)
class HostSettings:
    """The kernel settings for user namespaces; None if the kernel lacks one."""

    unprivileged_clone: int | None
    apparmor_restricts: int | None
    max_user_namespaces: int | None


def load_host_settings(sys_dir: Path = Path("/proc/sys")) -> HostSettings:
    """Read them from `/proc/sys`."""
    return HostSettings(*(_try_load_number(sys_dir / name) for name in _SETTINGS))


def check_version(text: str) -> None:
    """Raise SandboxUnavailable if `bwrap --version` is older than required."""
    found = re.search(r"(\d+)\.(\d+)", text)
    if found is None or (int(found[1]), int(found[2])) < MIN_VERSION:
        needed = ".".join(map(str, MIN_VERSION))
        raise SandboxUnavailable(f"Bubblewrap {needed} or later is needed; this is {text.strip()[:40]!r}.")


def build_missing() -> SandboxUnavailable:
    """The error if `bwrap` is not on the path."""
    return SandboxUnavailable("Bubblewrap is not installed.", "apt-get install -y bubblewrap")


def explain_failure(detail: str, settings: HostSettings) -> SandboxUnavailable:
    """Explain why a trial run did not start; `detail` is the error output of the supervisor and bubblewrap."""
    if "libseccomp" in detail:
        return SandboxUnavailable("The library libseccomp is not installed.", "apt-get install -y libseccomp2")
    if settings.max_user_namespaces == 0:
        return SandboxUnavailable(
            "User namespaces are switched off on this machine.", "sysctl -w user.max_user_namespaces=10000"
        )
    if settings.unprivileged_clone == 0:
        return SandboxUnavailable(
            "User namespaces are forbidden to ordinary users on this machine.",
            "sysctl -w kernel.unprivileged_userns_clone=1",
        )
    if settings.apparmor_restricts == 1 and _is_namespace_failure(detail):
        return SandboxUnavailable(
            "AppArmor forbids user namespaces to ordinary users on this machine.",
            "sysctl -w kernel.apparmor_restrict_unprivileged_userns=0",
        )
    if _is_namespace_failure(detail):
        return SandboxUnavailable(f"This machine, perhaps a container, allows no new namespaces ({_shorten(detail)}).")
    return SandboxUnavailable(f"A trial run in bubblewrap failed: {_shorten(detail)}.")


def _is_namespace_failure(detail: str) -> bool:
    marks = ("namespace", "uid map", "gid map", "setting up uid", "loopback", "Operation not permitted", "pivot_root")
    return any(mark in detail for mark in marks)


def _shorten(detail: str) -> str:
    return " ".join(detail.split())[:200].rstrip(". ") or "no reason given"


def _try_load_number(file: Path) -> int | None:
    try:
        return int(file.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None
