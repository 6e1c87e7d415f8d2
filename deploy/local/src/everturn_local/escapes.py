"""The escape battery as `make doctor` runs it: on bubblewrap, and on containers through a broker of its own."""

import contextlib
import json
import os
import select
import subprocess
import sys
import tempfile
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from everturn_local.settings import REPOSITORY

BATTERY_LIMIT_S: Final = 600.0
BROKER_START_S: Final = 20.0
BROKER_STOP_S: Final = 20.0
SANDBOX_PYTHON: Final = REPOSITORY / ".venv-sandbox" / "bin" / "python"
_SETTINGS: Final = ("EXECUTION_PROFILES", "EXECUTION_MODE", "SANDBOX_UIDS", "DOCKER_HOST")


@dataclass(frozen=True, slots=True)
class Escapes:
    """The battery's result on one launcher. `unavailable` says why it could not be tried there."""

    launcher: str
    held: int = 0
    total: int = 0
    rows: tuple[str, ...] = ()
    unavailable: str = ""
    remedy: str = ""


class BatteryFailed(Exception):
    """The battery itself did not come to an end."""


def run_escapes(environment: Mapping[str, str]) -> list[Escapes]:
    """Run the battery on every launcher of this machine. Raises BatteryFailed. All started processes end with it."""
    with _broker(environment) as broker:
        own = {name: environment[name] for name in _SETTINGS if name in environment}
        done = _run_command(
            {**own, "SANDBOX_PYTHON": str(SANDBOX_PYTHON), **({"BROKER_URL": broker} if broker else {})}
        )
    return parse_escapes(done)


def parse_escapes(text: str) -> list[Escapes]:
    """Parse the lines of `python -m chat_proc battery --json`, grouped by launcher in order."""
    lines = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
    launchers = dict.fromkeys(line["launcher"] for line in lines)
    return [_join(name, [line for line in lines if line["launcher"] == name]) for name in launchers]


def _join(launcher: str, lines: list[dict[str, Any]]) -> Escapes:
    if "unavailable" in lines[0]:
        return Escapes(launcher, unavailable=lines[0]["unavailable"], remedy=lines[0]["remedy"])
    rows = [f"{line['group']:<24} {line['held']:>3} of {line['of']}" for line in lines]
    missed = [f"NOT DENIED {m['group']}: {m['attempt']} ({m['detail']})" for line in lines for m in line["missed"]]
    held, total = (sum(line[name] for line in lines) for name in ("held", "of"))
    return Escapes(launcher, held, total, (*rows, *missed))


def _run_command(own: Mapping[str, str]) -> str:
    environment = {"PATH": os.defpath, "LC_ALL": "C.UTF-8", **own}
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-m", "chat_proc", "battery", "--json"],
            capture_output=True,
            text=True,
            timeout=BATTERY_LIMIT_S,
            check=False,
            env=environment,
        )
    except subprocess.TimeoutExpired as late:
        raise BatteryFailed(f"it did not end within {BATTERY_LIMIT_S:g} s") from late
    if done.returncode not in (0, 1):
        raise BatteryFailed(done.stderr.strip()[-300:])
    return done.stdout


@contextlib.contextmanager
def _broker(environment: Mapping[str, str]) -> Generator[str]:
    """Run a broker of our own; yields its URL, empty if it does not start, as with settings that do not fit.

    It ends its pairs when it is stopped.
    """
    with tempfile.TemporaryDirectory(prefix="everturn-doctor-") as folder:
        place = Path(folder) / "broker.sock"
        own = {name: environment[name] for name in _SETTINGS if name in environment}
        process = subprocess.Popen(
            [sys.executable, "-I", "-m", "exec_supervisor", "broker"],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={"PATH": os.defpath, "LC_ALL": "C.UTF-8", **own, "BROKER_SOCKET": str(place)},
        )
        try:
            yield f"unix://{place}" if _serves(process) else ""
        finally:
            process.terminate()
            try:
                process.wait(BROKER_STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            if process.stdout is not None:
                process.stdout.close()


def _serves(process: "subprocess.Popen[bytes]") -> bool:
    """Whether it prints its ready line. It does so without an engine too; the battery then finds that out."""
    if process.stdout is None:
        return False
    ready, _, _ = select.select([process.stdout], [], [], BROKER_START_S)
    return bool(ready and process.stdout.readline())
