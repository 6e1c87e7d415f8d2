"""Threads for functions that are not async, and a file with functions that are tools."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

CITY_TOOLS = '''
import time
from chat_proc.catalog.tool import ToolEvents

async def find(name: str, events: ToolEvents, limit: int = 3) -> list[dict[str, object]]:
    """Finds cities by name.

    The best first.
    """
    events.progress(f"Looking for {name}.")
    return [{"name": name, "limit": limit}]

def count(names: list[str]) -> int:
    """Counts names."""
    return len(names)

def fail() -> None:
    raise ValueError("no such city")

def _secret() -> None: ...
def untyped(x): ...
def spread(*names: str) -> None: ...
NUMBER = 7
'''


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as executor:
        yield executor


@pytest.fixture
def city_file(tmp_path: Path) -> Path:
    path = tmp_path / "city_tools.py"
    path.write_text(CITY_TOOLS, encoding="utf-8")
    return path
