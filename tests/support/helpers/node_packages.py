"""Packages of npm for tests, installed with the Node that builds the web client."""

import fcntl
import hashlib
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from everturn_local.web.choice import REMEDY
from everturn_local.web.client import INSTALL
from everturn_local.web.node import Node, try_find_node

INSTALL_TIMEOUT_S = 300


def find_node() -> Node:
    """Node and its npm. Skips where there is none, and fails in CI."""
    node = try_find_node()
    return node or _give_up(f"There is no Node: {REMEDY}")


def install_packages(source: Path, cache: Path) -> Path:
    """A folder in `cache` with the packages of the lock file in `source`, made once for each lock file.

    Skips where they can't be had, and fails in CI.
    """
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / "lock").open("w") as lock:
        # Groups of tests that run side by side share the folder.
        fcntl.flock(lock, fcntl.LOCK_EX)
        return _install(source, cache)


def _install(source: Path, cache: Path) -> Path:
    digest = hashlib.sha256((source / "package-lock.json").read_bytes()).hexdigest()[:12]
    folder = cache / digest
    done = folder / "done"
    if not done.exists():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        for name in ("package.json", "package-lock.json"):
            shutil.copy(source / name, folder)
        _run_npm(folder)
        done.touch()
    return folder


def _run_npm(folder: Path) -> None:
    node = find_node()
    try:
        done = subprocess.run(
            [node.program, node.npm, *INSTALL],
            check=False, cwd=folder, capture_output=True, text=True, timeout=INSTALL_TIMEOUT_S,
        )  # fmt: skip
        failure = done.stderr[-500:] if done.returncode else ""
    except (OSError, subprocess.TimeoutExpired) as error:
        failure = str(error)
    if failure:
        _give_up(f"Packages could not be installed: {failure}")


def _give_up(reason: str) -> Node:
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)
