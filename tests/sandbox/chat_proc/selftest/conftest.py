"""The report of the battery on each launcher, made once for all tests here, and attempts made without any walls."""

import asyncio
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from chat_proc.selftest.probes.attempts import Group
from chat_proc.selftest.run import run_battery
from chat_proc.selftest.trials import BatteryReport

PROBES = "chat_proc.selftest.probes"
NOBODY = 1999
"""A user without processes: what is tried without walls must not meet anybody else's."""
WITHOUT_WALLS = """
import ctypes, encodings.ascii, encodings.idna, encodings.utf_8, importlib, json, os, stringprep, sys
from chat_proc.selftest.probes.attempts import Surroundings, try_one
module, group, uid, names, around = json.loads(sys.argv[1])
attempts = getattr(importlib.import_module(module), group).attempts
os.chown(".", uid, uid)
os.setgroups([]); os.setresgid(uid, uid, uid); os.setresuid(uid, uid, uid)
ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)
read, write = os.pipe()
pid = os.fork()
if pid == 0:
    os.close(write); os.read(read, 1); os._exit(0)
print(json.dumps({name: try_one(attempts[name], Surroundings(**around)) for name in names}))
"""

TryWithoutWalls = Callable[..., dict[str, tuple[bool, str]]]


@pytest.fixture(scope="session")
def report(sandbox) -> BatteryReport:
    return asyncio.run(run_battery(sandbox))


@pytest.fixture
def try_without_walls() -> Iterator[TryWithoutWalls]:
    """Makes attempts as an ordinary user of this machine, who has another process and is kept from nothing. Pytest's
    own folder stays closed to that user."""
    if os.geteuid() != 0:
        pytest.skip("only root can become a user who has no other processes")
    with tempfile.TemporaryDirectory(prefix="everturn-selftest-", ignore_cleanup_errors=True) as folder:
        Path(folder).chmod(0o755)
        yield build_attempts(Path(folder))


def build_attempts(folder: Path) -> TryWithoutWalls:
    file = folder / "canary"
    file.write_text("secret")

    def try_all(module: str, group: str, *names: str, **around: object) -> dict[str, tuple[bool, str]]:
        known = {"canary": "c", "neighbour": "n", "port": 1, "abstract": "a", "host_file": str(file), "granted": "a.b"}
        known |= {"engine_sockets": [], "nonces": ["n1", "n2"], **around}
        place = folder / "work"
        place.mkdir(exist_ok=True)
        done = subprocess.run(
            [sys.executable, "-c", WITHOUT_WALLS, json.dumps([f"{PROBES}.{module}", group, NOBODY, names, known])],
            cwd=place,
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return {name: (held, detail) for name, (held, detail) in json.loads(done.stdout).items()}

    return try_all


@pytest.fixture
def check_all_held(report: BatteryReport) -> Callable[..., None]:
    """Fails unless every attempt of some groups was made, and denied."""

    def check(*groups: Group) -> None:
        titles = {group.title for group in groups}
        found = {finding.attempt: finding for finding in report.findings if finding.group in titles}
        assert set(found) == {name for group in groups for name in group.attempts}
        assert not [finding for finding in found.values() if not finding.held]

    return check
