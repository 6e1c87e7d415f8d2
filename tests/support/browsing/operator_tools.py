"""Tools of an operator in the browser tests; the platform loads this file by its path."""

import asyncio
import os
from pathlib import Path

from chat_proc.catalog.tool import ToolEvents

GATES = "BROWSER_TEST_GATES"
"""The variable with the folder in which a file opens the gate of its name."""
POLL_S = 0.05


def send(to: str, text: str) -> str:
    """Sends a mail."""
    return f"sent {len(text)} characters to {to}"


async def wait(name: str, events: ToolEvents) -> str:
    """Waits until the gate is opened; it is closed again behind this."""
    gate = Path(os.environ[GATES]) / name
    events.progress(f"before the gate {name}")
    while not gate.exists():  # noqa: ASYNC110 - there is no event for another process's files
        await asyncio.sleep(POLL_S)
    gate.unlink()
    return f"passed the gate {name}"
