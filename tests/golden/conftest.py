"""The option that records the golden files again: `pytest tests/golden --update-golden`, then read the difference."""

from collections.abc import Callable
from pathlib import Path

import pytest

CheckGolden = Callable[[str, str], None]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="record tests/golden again instead of comparing")


@pytest.fixture
def check_golden(request: pytest.FixtureRequest) -> CheckGolden:
    """`check_golden(name, text)` compares with the recorded text, or records it."""

    def check(name: str, text: str) -> None:
        recorded = Path(__file__).parent / "turns" / f"{name}.txt"
        if request.config.getoption("--update-golden", default=False):
            recorded.parent.mkdir(exist_ok=True)
            recorded.write_text(text, encoding="utf-8")
        assert recorded.is_file(), f"{recorded.name} is not recorded yet: run pytest tests/golden --update-golden"
        assert text == recorded.read_text(encoding="utf-8")

    return check
