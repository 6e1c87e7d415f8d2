"""The user of a child process and its tie to the parent, as a `setpriv` command prefix."""

import os
import shutil
from collections.abc import Iterable
from pathlib import Path

from everturn.core.errors import EverturnError

SERVER_UID = 65534
"""User and group of Postgres when we are root: it refuses to run as root, and `nobody` exists everywhere."""

CAPABILITY_BITS = {"dac_read_search": 2, "dac_override": 1}


class SetprivMissingError(EverturnError):
    """The program setpriv is needed to run servers as another user; install the package util-linux."""


def is_root() -> bool:
    return os.geteuid() == 0


def build_child_prefix(*, death_signal: str) -> list[str]:
    """The kernel sends `death_signal` to the child when its parent dies, so that a killed run leaves nothing."""
    setpriv = shutil.which("setpriv")
    return [setpriv, "--pdeathsig", death_signal, "--"] if setpriv else []


def build_server_prefix(*, death_signal: str, reaches: Iterable[Path]) -> list[str]:
    """Like `build_child_prefix`, and for root: as SERVER_UID.

    `reaches` are the paths that the server must open. If a folder above them is closed to it (a checkout under /root),
    the server gets the one capability that lets it traverse folders, instead of opening those folders to everybody.
    """
    if not is_root():
        return build_child_prefix(death_signal=death_signal)
    setpriv = shutil.which("setpriv")
    if setpriv is None:
        raise SetprivMissingError()
    identity = ["--reuid", str(SERVER_UID), "--regid", str(SERVER_UID), "--clear-groups"]
    passage = [] if all(is_reachable(path) for path in reaches) else _build_passage()
    return [setpriv, *identity, *passage, "--pdeathsig", death_signal, "--"]


def is_reachable(path: Path) -> bool:
    """Whether SERVER_UID can traverse every folder above `path`."""
    return all(_may_pass(folder.stat()) for folder in path.absolute().parents)


def _may_pass(status: os.stat_result) -> bool:
    if status.st_uid == SERVER_UID:
        return bool(status.st_mode & 0o100)
    if status.st_gid == SERVER_UID:
        return bool(status.st_mode & 0o010)
    return bool(status.st_mode & 0o001)


def _build_passage() -> list[str]:
    """Containers often lack the narrower capability, so use the first that we have.

    `no_setuid_fixup` makes access(2), with which Postgres checks its own binary, honour the capability.
    """
    held = _load_capabilities()
    name = next((name for name, bit in CAPABILITY_BITS.items() if held >> bit & 1), "dac_override")
    return ["--inh-caps", f"+{name}", "--ambient-caps", f"+{name}", "--securebits", "+no_setuid_fixup"]


def _load_capabilities() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next((int(line.split()[1], 16) for line in lines if line.startswith("CapPrm:")), 0)
