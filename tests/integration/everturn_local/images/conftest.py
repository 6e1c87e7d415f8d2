"""The container engine of this machine; where none answers these tests skip, in CI they fail."""

import os
import secrets
from collections.abc import Iterator

import pytest

from everturn_local.images.contents import EXECUTOR, SUPERVISOR
from everturn_local.images.engine import Engine, NoEngineError, open_engine
from everturn_local.settings import load_environment


@pytest.fixture(scope="session")
def engine() -> Iterator[Engine]:
    try:
        with open_engine(load_environment()) as opened:
            yield opened
    except NoEngineError as error:
        if os.environ.get("CI") == "true":
            pytest.fail(f"a container engine is needed here: {error}")
        pytest.skip(f"no container engine: {error}")


@pytest.fixture
def repository(engine: Engine) -> Iterator[str]:
    """A name for images of one test, which are removed after it."""
    name = f"everturn-test/{secrets.token_hex(6)}"
    yield name
    for tag in engine.load_tags(name):
        engine.try_remove_tag(tag)


@pytest.fixture(scope="session")
def executor_image(engine: Engine) -> str:
    return _check_image(engine, EXECUTOR)


@pytest.fixture(scope="session")
def supervisor_image(engine: Engine) -> str:
    return _check_image(engine, SUPERVISOR)


def _check_image(engine: Engine, name: str) -> str:
    """Made by `make images`: too slow for a test."""
    if engine.try_load_image(name) is None:
        if os.environ.get("CI") == "true":
            pytest.fail(f"{name} is needed here: make images")
        pytest.skip(f"no image {name}: make images")
    return name
