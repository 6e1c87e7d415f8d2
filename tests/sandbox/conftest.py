"""The real sandbox by each of its launchers: whatever is tested with `run` or `sandbox` is tested on all of them.

A launcher that can't be had is skipped with the reason; in CI it fails. `profiles.json` has what runs may use, by name.
"""

import asyncio
import contextlib
import filecmp
import itertools
import json
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import NoReturn, get_args

import docker
import pytest

import everturn
import executor
from chat_proc.sandbox.containers import BrokerAddress
from chat_proc.sandbox.launching import SupervisedSandbox
from chat_proc.sandbox.opening import ExecutionChoice, OpenedSandbox, open_sandbox
from chat_proc.sandbox.port import (
    ContractItem,
    RunRequest,
    RunResult,
    SandboxUnavailable,
    ServeConnection,
    ToolCaller,
)
from chat_proc.settings import LauncherName
from everturn.execution.messages import Capability, GatewayCall, ToolReply
from everturn.execution.profiles import DEFAULT_PROFILE, Profiles, load_profiles
from everturn_local.images.contents import EXECUTOR, RUN_IMAGES, SUPERVISOR, is_current
from everturn_local.images.engine import NoEngineError, open_engine
from everturn_local.settings import load_environment

ROOT = Path(__file__).parents[2]
PYTHON = ROOT / ".venv-sandbox" / "bin" / "python"
PROFILES_FILE = Path(__file__).with_name("profiles.json")
BROKER = (sys.executable, "-I", "-m", "exec_supervisor", "broker")
BROKER_ENDS_WITHIN_S = 30
TIMEOUT_S = 240
"""The first test of a launcher waits for what all of them share: the broker's first pairs, the battery's report."""

COMBINED = "combined"
"""The layout of containers that is tested like a launcher of its own; most of it only with SLOW=1."""

MAX_PAIRS = 8
"""Fewer than the runs that a test starts at once: the others wait for their turn, as they do in production."""


Outputs = tuple[str, ...]
RunProgram = Callable[..., Awaitable[RunResult]]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.sandbox)
            if item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(TIMEOUT_S))


@pytest.fixture(scope="session")
def profiles() -> Profiles:
    return load_profiles(str(PROFILES_FILE))


@pytest.fixture(scope="session")
def images() -> dict[str, str]:
    """The images made from the present sources: an older one would be tested in place of these. By their ids, because
    another checkout can give their names to its own."""
    try:
        with open_engine(load_environment()) as engine:
            found = {name: image for name in RUN_IMAGES if (image := engine.try_load_image(name))}
    except NoEngineError as error:
        leave_out(f"no container engine: {error}")
    current = {name: image.id for name, image in found.items() if is_current(name, image)}
    if current.keys() != RUN_IMAGES.keys():
        leave_out("no images made from the present sources: make images")
    return {"executor_image": current[EXECUTOR], "supervisor_image": current[SUPERVISOR]}


@pytest.fixture(scope="module")
def client() -> Iterator[docker.APIClient]:
    opened = docker.APIClient(version="auto", timeout=60)
    yield opened
    opened.close()


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory, images: dict[str, str]) -> Iterator[BrokerAddress]:
    """A broker of this session, which ends its pairs at the end."""
    with running_broker(tmp_path_factory.mktemp("broker"), images, "pair") as address:
        yield address


@pytest.fixture(scope="session")
def combined_broker(tmp_path_factory: pytest.TempPathFactory, images: dict[str, str]) -> Iterator[BrokerAddress]:
    """The same with both halves of a pair in one container."""
    with running_broker(tmp_path_factory.mktemp("combined"), images, "combined") as address:
        yield address


@contextlib.contextmanager
def running_broker(folder: Path, images: dict[str, str], layout: str) -> Iterator[BrokerAddress]:
    profiles = json.loads(PROFILES_FILE.read_text())
    (folder / "profiles").write_text(json.dumps({name: {**profile, **images} for name, profile in profiles.items()}))
    env = {
        **os.environ,
        "BROKER_SOCKET": f"{folder}/broker.sock",
        "BROKER_LAYOUT": layout,
        "BROKER_MAX_PAIRS": str(MAX_PAIRS),
        "EXECUTION_PROFILES": f"{folder}/profiles",
    }
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(BROKER, env=env, stdout=subprocess.PIPE, stderr=log)
    try:
        if process.stdout is None or not process.stdout.readline():
            leave_out(f"no broker: {(folder / 'log').read_text()[-500:]}")
        yield BrokerAddress(f"unix://{folder}/broker.sock", path=f"{folder}/broker.sock")
    finally:
        process.terminate()
        process.communicate(timeout=BROKER_ENDS_WITHIN_S)


@pytest.fixture(scope="session", params=[*get_args(LauncherName), pytest.param(COMBINED, marks=pytest.mark.slow)])
def sandbox(request: pytest.FixtureRequest) -> SupervisedSandbox:
    """Each launcher in turn, and the other layout of containers."""
    return open_by_name(request.param, request)


@pytest.fixture(scope="session")
def combined_sandbox(request: pytest.FixtureRequest) -> SupervisedSandbox:
    return open_by_name(COMBINED, request)


@pytest.fixture(scope="session")
def bubblewrap_sandbox(request: pytest.FixtureRequest) -> SupervisedSandbox:
    return open_by_name("bubblewrap", request)


def open_by_name(name: str, request: pytest.FixtureRequest) -> SupervisedSandbox:
    """The launcher without a pool of this process: a run of bubblewrap is a cold start, the broker keeps pairs warm."""
    fixture = {"containers": "broker", COMBINED: "combined_broker"}.get(name)
    broker: BrokerAddress | None = request.getfixturevalue(fixture) if fixture else None
    launcher: LauncherName = "containers" if broker else "bubblewrap"
    profiles: Profiles = request.getfixturevalue("profiles")
    cold = {profile: allowed.model_copy(update={"warm": 0}) for profile, allowed in profiles.items()}
    opened = asyncio.run(open_once(ExecutionChoice(launcher, broker, PYTHON, cold)))
    if isinstance(opened, SandboxUnavailable):
        leave_out(f"no {name}: {opened}")
    if opened.silence:
        leave_out(f"no {name}: {opened.silence}")
    if not opened.sandbox.image:
        check_installed_copies()
    return opened.sandbox


async def open_once(choice: ExecutionChoice) -> OpenedSandbox | SandboxUnavailable:
    async with open_sandbox(choice) as opened:
        return opened


def leave_out(reason: str) -> NoReturn:
    if os.environ.get("CI") == "true":
        pytest.fail(f"this launcher is needed here: {reason}")
    pytest.skip(reason)


def check_installed_copies() -> None:
    """The sandbox environment holds copies of our two packages; old ones would be tested in place of these."""
    [installed] = (ROOT / ".venv-sandbox" / "lib").glob("python*/site-packages")
    for package, parts in (
        (executor, ("*.py",)),
        (everturn, [f"execution/{name}.py" for name in ("framing", "messages", "privileges", "records")]),
    ):
        source = Path(package.__path__[0])
        files = [file for part in parts for file in source.glob(part)]
        assert len(files) >= len(parts), f"{package.__name__} has no longer all of {parts}"
        for file in files:
            copy = installed / source.name / file.relative_to(source)
            if not copy.exists() or not filecmp.cmp(file, copy, shallow=False):
                pytest.fail(f"{copy} is not the present {file.name}: run `make setup`")


@pytest.fixture
def run(sandbox: SupervisedSandbox) -> RunProgram:
    """Runs a program with defaults that suit a test: no contract, no tools, ten seconds."""
    return build_run(sandbox)


@pytest.fixture
def run_combined(combined_sandbox: SupervisedSandbox) -> RunProgram:
    """The same with both halves in one container, also where the others of these tests are not run on it."""
    return build_run(combined_sandbox)


@pytest.fixture
def run_on() -> Callable[[SupervisedSandbox], RunProgram]:
    """Makes a `run` for another sandbox."""
    return build_run


def build_run(sandbox: SupervisedSandbox) -> RunProgram:
    numbers = itertools.count(1)

    async def run_program(
        program: str,
        *,
        outputs: Outputs = (),
        inputs: dict[str, bytes | Path] | None = None,
        timeout_s: float = 10.0,
        profile: str = DEFAULT_PROFILE,
        capability: Capability | None = None,
        call_tool: ToolCaller | None = None,
        stop: asyncio.Event | None = None,
        serve_models: ServeConnection | None = None,
    ) -> RunResult:
        request = RunRequest(
            execution_id=f"test-{os.getpid()}-{next(numbers)}",
            turn_id="turn_1",
            program=program,
            contract=tuple(ContractItem(path) for path in outputs),
            inputs=inputs or {},
            timeout_s=timeout_s,
            profile=profile,
            capability=capability or Capability(),
            serve_models=serve_models,
        )
        return await sandbox.run(request, call_tool or refuse, stop=stop)

    return run_program


async def refuse(call: GatewayCall) -> ToolReply:
    return ToolReply(call.id, False, None, "not_allowed", "this test has no tools")
