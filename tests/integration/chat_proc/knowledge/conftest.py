"""A git repository for each test."""

from pathlib import Path

import pytest
from helpers.git_sources import GitSource


@pytest.fixture
def source(tmp_path: Path) -> GitSource:
    return GitSource(tmp_path / "source")
