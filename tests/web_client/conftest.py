"""The web client's tools, with the Node that builds it."""

import os
from pathlib import Path

import pytest

from everturn_local.web.choice import NoNode, open_web_client
from everturn_local.web.client import INSTALL_LIMIT_S, TEST_LIMIT_S, WebClient


@pytest.fixture(scope="session")
def web_client() -> WebClient:
    """The web client of this checkout; its packages are installed when they are first needed."""
    try:
        return open_web_client(print)
    except NoNode as absent:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(absent))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The first of these tests installs the packages, the limits of what they run are the tools' own."""
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.timeout(INSTALL_LIMIT_S + TEST_LIMIT_S))
