"""What is planted outside can be found there, and is gone afterwards."""

import os
import socket
from pathlib import Path

import pytest

from chat_proc.selftest.run import open_surroundings


def look_at(file: Path) -> tuple[str, int, int]:
    return file.read_text(), file.stat().st_mode & 0o777, file.parent.stat().st_mode & 0o777


async def test_canaries_are_planted_and_taken_away():
    async with open_surroundings(7) as around:
        file = Path(around.host_file)
        assert look_at(file) == (around.canary, 0o644, 0o755)
        assert os.environ["EVERTURN_BATTERY_CANARY"] == around.canary
        with socket.socket(socket.AF_UNIX) as client:
            client.connect("\0" + around.abstract)
        assert around.port == 7

    with pytest.raises(FileNotFoundError):
        look_at(file)
    assert "EVERTURN_BATTERY_CANARY" not in os.environ
