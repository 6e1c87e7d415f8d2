"""The platform as `make up` starts it, of our own images and of stand-ins for others, once for all tests here."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from standins.images import find_obstacle, save_standins
from standins.installation import OwnInstallation

from everturn.core.errors import EverturnError
from everturn_local.compose.program import find_program
from everturn_local.images.engine import open_engine
from everturn_local.settings import load_environment


@pytest.fixture(scope="session")
def standins() -> str:
    """The image. Fails the tests where it can't be made."""
    try:
        find_program(os.environ["PATH"])
        with open_engine(load_environment()) as engine:
            subprocess.run(["make", "images"], check=True)
            if obstacle := find_obstacle(engine):
                pytest.fail(obstacle, pytrace=False)
            return save_standins(engine)
    except EverturnError as error:
        pytest.fail(str(error), pytrace=False)


@pytest.fixture(scope="session")
def installation(standins: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OwnInstallation]:
    """Ready, with two workers; nothing is left of it afterwards."""
    with OwnInstallation(Path(tmp_path_factory.mktemp("installation")), standins) as opened:
        yield opened
