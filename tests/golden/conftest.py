"""Golden files: `UPDATE_GOLDEN=1 make test TESTS=tests/golden` records them again; then read the difference."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

CheckGolden = Callable[[str, str], None]


@pytest.fixture
def check_golden() -> CheckGolden:
    """`check_golden(name, text)` compares with the recorded text, or records it."""

    def check(name: str, text: str) -> None:
        recorded = Path(__file__).parent / "turns" / f"{name}.txt"
        if os.environ.get("UPDATE_GOLDEN") == "1":
            recorded.parent.mkdir(exist_ok=True)
            recorded.write_text(text, encoding="utf-8")
        assert recorded.is_file(), f"{recorded.name} is not recorded yet: UPDATE_GOLDEN=1 make test TESTS=tests/golden"
        assert text == recorded.read_text(encoding="utf-8")

    return check
