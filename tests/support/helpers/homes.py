"""Quickly created homes of platforms: each is a copy of one with an empty database.

That a platform makes its own database is shown where `make run` is played, and by the tests of the platform itself.
"""

import atexit
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

from everturn_local.home import save_home
from everturn_local.migrations import run_database


def copy_home(folder: Path) -> Path:
    """The same folder, with a home in it that was never used. Copies share passwords, as they share nothing else."""
    save_home(folder)
    subprocess.run(["cp", "--archive", f"{_make_home()}/.", folder], check=True)
    return folder


@cache
def _make_home() -> Path:
    """One for each process of tests; gone at its end."""
    folder = Path(tempfile.mkdtemp(prefix="everturn-home-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    home = save_home(folder)
    with run_database(home, durable=False):
        pass
    # Where two copies run at once, each looks for a port of its own.
    (home.postgres / "port").unlink()
    return folder
