"""One clamd per module, and an ingress that scans with it."""

from collections.abc import Iterator

import pytest
from clamd_server import ClamdServer


@pytest.fixture(scope="module")
def clamd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClamdServer]:
    server = ClamdServer(tmp_path_factory.mktemp("clamd")).start()
    yield server
    server.kill()
