"""The version before this one, as processes of its own, beside this one."""

import os
import subprocess
import sys
import sysconfig
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from helpers.forks import ForkingSpawn

from everturn_local.processes import Child, Process
from everturn_local.settings import REPOSITORY

FOLDERS = ("clients/python", "libs", "migrations", "services")
MIGRATIONS = "migrations/versions"
DETACHED_RUNS = "libs/common/src/everturn/turns/detached.py"
GIT_LIMIT_S = 60.0


def find_previous() -> str | None:
    """PREVIOUS, or the commit before the one that added the newest migration, so that it runs under load. If the
    history is too short for that, the commit before the last one or the last one: these still show that processes can
    be replaced. None without a history."""
    wanted = os.environ.get("PREVIOUS")
    added = _run_git("log", "-1", "--format=%H", "--diff-filter=A", "--", f"{MIGRATIONS}/*.py").stdout.decode().strip()
    for name in [wanted] if wanted else [*([f"{added}~1"] if added else []), "HEAD~1", "HEAD"]:
        found = _run_git("rev-parse", "--verify", "--quiet", f"{name}^{{commit}}")
        if found.returncode == 0:
            return found.stdout.decode().strip()
    assert not wanted, f"PREVIOUS={wanted} is not a commit of this checkout"
    return None


class Previous:
    """The sources of a commit in `folder`, and a Python that runs them with the libraries of this version."""

    def __init__(self, folder: Path, commit: str) -> None:
        folder.mkdir()
        self.folder = folder
        present = [name for name in FOLDERS if _run_git("cat-file", "-e", f"{commit}:{name}").returncode == 0]
        archive = _run_git("archive", commit, *present)
        subprocess.run(["tar", "-x", "-C", str(folder)], input=archive.stdout, check=True, timeout=GIT_LIMIT_S)
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder / ".venv")], check=True)
        self.python = folder / ".venv" / "bin" / "python"
        # Only modules are searched for in the folders that this file names, not files like it, which this version has.
        paths = [*sorted(str(path) for path in folder.glob("*/*/src")), sysconfig.get_path("purelib")]
        (own,) = (folder / ".venv").glob("lib/python*/site-packages")
        (own / "previous.pth").write_text("".join(f"{path}\n" for path in paths))

    @property
    def has_other_schema(self) -> bool:
        return _load_names(self.folder / MIGRATIONS) != _load_names(REPOSITORY / MIGRATIONS)

    @property
    def detaches_runs(self) -> bool:
        """Whether it knows `detach_after_s`, which would keep its workers from starting otherwise."""
        return (self.folder / DETACHED_RUNS).exists()

    def run_migrations(self, owner_url: str, *, env: Mapping[str, str]) -> None:
        argv = [str(self.python), "-m", "alembic", "-c", "migrations/alembic.ini", "upgrade", "head"]
        env = {**env, "DATABASE_OWNER_URL": owner_url}
        subprocess.run(argv, env=env, cwd=self.folder, check=True, capture_output=True, timeout=GIT_LIMIT_S)


class MixedSpawn:
    """What `Platform` takes as `spawn`: services are of the version before until their names are in `renewed`."""

    def __init__(self, previous: Previous) -> None:
        self.renewed: set[str] = set()
        self._previous = previous
        self._fork = ForkingSpawn()

    def __call__(self, argv: Sequence[str], *, log: Path, **settings: Any) -> Process:
        if log.stem in self.renewed:
            return self._fork(argv, log=log, **settings)
        python = str(self._previous.python)
        return Child([python if each == sys.executable else each for each in argv], log=log, **settings)


def _load_names(folder: Path) -> set[str]:
    return {file.name for file in folder.glob("*.py")}


def _run_git(*arguments: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        ["git", "-C", str(REPOSITORY), *arguments], capture_output=True, check=False, timeout=GIT_LIMIT_S
    )
