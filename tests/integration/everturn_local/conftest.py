"""Small services that keep to the ready protocol, to supervise in tests."""

import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from everturn_local.home import Home, save_home
from everturn_local.supervision.service import ServiceSpec

BODY = """
import json, os, signal, sys, time
def say(text):
    os.write(int(os.environ["READY_FD"]), text.encode())
def ready(**fields):
    say(json.dumps({"ready": True, **fields}) + "\\n")
"""

SpecMaker = Callable[..., ServiceSpec]


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return save_home(tmp_path / "home")


@pytest.fixture
def make_spec(home: Home) -> SpecMaker:
    """`make_spec(name, program)`: a service whose program may call `ready(...)` and `say(text)`."""

    def make(name: str, program: str, *, log: Path | None = None, **env: str) -> ServiceSpec:
        argv = [sys.executable, "-S", "-c", BODY + textwrap.dedent(program)]
        return ServiceSpec(name=name, argv=argv, env=env, log=log or home.logs / f"{name}.log")

    return make
