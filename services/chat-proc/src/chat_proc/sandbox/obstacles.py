"""Why bubblewrap does not work on a machine, said in one sentence, and the one command that would change it."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from everturn.ports.sandbox import SandboxUnavailable

MIN_VERSION: Final = (0, 8)
"""The first bubblewrap with `--disable-userns`."""

_CLONE_SWITCH: Final = "kernel/unprivileged_userns_clone"
_APPARMOR_SWITCH: Final = "kernel/apparmor_restrict_unprivileged_userns"
_MAX_NAMESPACES: Final = "user/max_user_namespaces"
_SETTINGS: Final = (_CLONE_SWITCH, _APPARMOR_SWITCH, _MAX_NAMESPACES)


@dataclass(frozen=True, slots=True)
class HostSettings:
    """The kernel's settings that decide on user namespaces; None where the kernel doesn't know one."""

    unprivileged_clone: int | None
    apparmor_restricts: int | None
    max_user_namespaces: int | None


def load_host_settings(sys_dir: Path = Path("/proc/sys")) -> HostSettings:
    """Read them from `/proc/sys`."""
    return HostSettings(*(_try_load_number(sys_dir / name) for name in _SETTINGS))


def check_version(text: str) -> None:
    """Raise SandboxUnavailable when `bwrap --version` says less than we need."""
    found = re.search(r"(\d+)\.(\d+)", text)
    if found is None or (int(found[1]), int(found[2])) < MIN_VERSION:
        needed = ".".join(map(str, MIN_VERSION))
        raise SandboxUnavailable(f"Bubblewrap {needed} or later is needed, this is {text.strip()[:40]!r}.")


def build_missing() -> SandboxUnavailable:
    """There is no `bwrap` on the path."""
    return SandboxUnavailable("Bubblewrap is not installed.", "apt-get install -y bubblewrap")


def explain_failure(detail: str, settings: HostSettings) -> SandboxUnavailable:
    """What stands behind a trial run that did not start; `detail` is what the supervisor and bubblewrap said."""
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
