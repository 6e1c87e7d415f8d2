"""The libraries of an image for the Python of its base, in a folder that is created once per lock."""

import hashlib
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from everturn_local.images.context import Context, load_folder
from everturn_local.images.engine import ImageError
from everturn_local.settings import REPOSITORY

SETUP: Final = REPOSITORY / "deploy" / "local" / "setup_environment.py"
LIMIT_S: Final = 600
KEPT: Final = 8
"""Folders of three services and the executor, for this lock and the previous one."""
MIN_GLIBC: Final = (2, 28)
NOT_IMPORTED: Final = ("libraries/bin/", "libraries/share/", "libraries/.", "libraries/pandas/tests/")
"""Start scripts refer to the Python that installed them; the rest is never imported."""


@dataclass(frozen=True, slots=True)
class BasePython:
    """The properties that determine which wheels fit. `version` is like 3.12, `machine` like x86_64, `libc` like
    2.36."""

    version: str
    machine: str
    libc: str


ASK_PYTHON: Final = (
    "import os, platform, sys; print('%d.%d' % sys.version_info[:2], platform.machine(), *platform.libc_ver())"
)
"""Prints the input of `parse_python`."""


def parse_python(printed: str) -> BasePython:
    """Parse the base's properties. Raises ImageError for a base without matching wheels."""
    match printed.split():
        case [version, machine, "glibc", libc] if tuple(map(int, libc.split(".")[:2])) >= MIN_GLIBC:
            return BasePython(version, machine, libc)
        case _:
            raise ImageError(f"the base image needs glibc {MIN_GLIBC[0]}.{MIN_GLIBC[1]} or newer; it says: {printed}")


def save_libraries(python: BasePython, cache: Path, lock: str) -> Context:
    """The files of a lock's packages, under `libraries/`. Downloads missing ones and verifies their hashes."""
    folder = cache / "libraries" / build_folder_name(python, lock)
    if not folder.is_dir():
        unfinished = folder.with_suffix(".new")
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir(parents=True)
        _run_setup(unfinished, python, lock)
        unfinished.rename(folder)
        _remove_old(folder.parent)
    files = load_folder(folder, "libraries")
    return {name: path for name, path in files.items() if not name.startswith(NOT_IMPORTED)}


def build_folder_name(python: BasePython, lock: str) -> str:
    return f"{python.version}-{python.machine}-{hashlib.sha256(lock.encode()).hexdigest()[:16]}"


def build_platform(python: BasePython) -> str:
    """The oldest platform that all wheels of the lock support; newer ones run them too."""
    return f"{python.machine}-manylinux_{MIN_GLIBC[0]}_{MIN_GLIBC[1]}"


def _run_setup(folder: Path, python: BasePython, lock: str) -> None:
    with tempfile.NamedTemporaryFile("w", suffix=".lock", dir=folder.parent) as file:
        file.write(lock)
        file.flush()
        wanted = ["--libraries", str(folder), python.version, build_platform(python), file.name]
        command = [sys.executable, "-I", str(SETUP), *wanted]
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    if done.returncode != 0:
        raise ImageError(f"the libraries of an image could not be determined:\n{done.stderr.strip()}")


def _remove_old(parent: Path) -> None:
    for folder in sorted(
        filter(Path.is_dir, parent.iterdir()), key=lambda folder: folder.stat().st_mtime, reverse=True
    )[KEPT:]:
        shutil.rmtree(folder)
