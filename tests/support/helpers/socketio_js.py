"""The official JavaScript client as a process that receives commands line by line."""

import asyncio
import json
import shutil
from pathlib import Path
from typing import Any

from helpers.node_packages import find_node, install_packages

SOURCE = Path(__file__).parent.parent / "socketio_js"
WAIT_S = 30


def install_client(cache: Path) -> Path:
    """The folder with the client and its packages. Skips where they can't be had."""
    folder = install_packages(SOURCE, cache)
    shutil.copy(SOURCE / "client.mjs", folder)
    return folder


class NodeClient:
    """A running client; it says one JSON object in a line."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    @classmethod
    async def start(cls, folder: Path, *args: str) -> "NodeClient":
        pipe = asyncio.subprocess.PIPE
        return cls(
            await asyncio.create_subprocess_exec(
                find_node().program, folder / "client.mjs", *args, stdin=pipe, stdout=pipe, cwd=folder
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
