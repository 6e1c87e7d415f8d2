"""A git repository for each test, and a server for repositories."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers.git_server import GitServer, serve_git
from helpers.git_sources import GitSource


@pytest.fixture
def source(tmp_path: Path) -> GitSource:
    return GitSource(tmp_path / "source")


@pytest.fixture
def git_server(tmp_path: Path) -> Iterator[GitServer]:
    """Serves the repository `source` as `source`."""
    private = tmp_path / "server"
    private.mkdir()
    with serve_git(tmp_path, private) as server:
        yield server
