"""A broker of its own for each module here, on the engine of this machine, and a look at what that engine has of it."""

import json
import tempfile
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path

import pytest
from helpers.broker import OwnBroker
from helpers.calling import Caller, calling
from helpers.waiting import wait_until
from leaks.engines import EngineView, load_pairs

from everturn.execution.messages import MIB

SHAPES = {"pair": (2, 1), "combined": (1, 0)}
Call = Callable[[], AbstractAsyncContextManager[Caller]]


@pytest.fixture(scope="module", params=["pair", pytest.param("combined", marks=pytest.mark.slow)])
def layout(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def shape(layout: str) -> tuple[int, int]:
    """How many containers and volumes a pair has."""
    return SHAPES[layout]


@pytest.fixture(scope="module")
def broker(images: dict[str, str], layout: str) -> Iterator[OwnBroker]:
    """It keeps a pair of one profile warm. A test that ends it starts it again."""
    small = {"memory_bytes": 128 * MIB, "work_dir_bytes": 8 * MIB, "out_dir_bytes": 8 * MIB}
    profiles = {
        "default": {**images, "limits": small},
        "other": {
            **images,
            "limits": {"processes": 20, "open_files": 100, "inodes": 99},
            "cpus": 0.5,
            "runtime": "runc",
        },
        "warm": {**images, "warm": 1},
        "no-image": {**images, "executor_image": "everturn/no-such-image:latest"},
        "no-runtime": {**images, "runtime": "no-such-runtime"},
        "wrong-image": {**images, "executor_image": images["supervisor_image"]},
    }
    # Not under pytest's folder, whose path is too long for a socket on some machines.
    with (
        tempfile.TemporaryDirectory() as folder,
        OwnBroker(Path(folder), profiles=json.dumps(profiles), BROKER_LAYOUT=layout) as own,
    ):
        yield own


@pytest.fixture(scope="module")
def view(broker: OwnBroker) -> Iterator[EngineView]:
    """All that the engine has of this broker."""
    opened = EngineView(broker.label)
    yield opened
    opened.close()


@pytest.fixture
async def call(broker: OwnBroker, view: EngineView, shape: tuple[int, int]) -> AsyncGenerator[Call]:
    """Opens connections to the broker; before and after each test there is nothing but the warm pair."""
    await wait_until(lambda: is_idle(broker, view, shape))
    yield partial(calling, broker.socket)
    await wait_until(lambda: is_idle(broker, view, shape))


def is_idle(broker: OwnBroker, view: EngineView, shape: tuple[int, int]) -> bool:
    """One pair is warm, and the engine has nothing else."""
    states = [pair.state for pair in load_pairs(str(broker.socket)).pairs]
    return states == ["warm"] and (len(view.load_containers()), len(view.load_volumes())) == shape
