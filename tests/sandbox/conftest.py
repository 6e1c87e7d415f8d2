"""The real bubblewrap sandbox for the tests here; where it can't be had they skip with the reason, in CI they fail."""

import asyncio
import filecmp
import itertools
import os
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

import everturn
import executor
from chat_proc.sandbox.bubblewrap import BubblewrapSandbox, open_bubblewrap_sandbox
from everturn.ports.sandbox import ContractItem, RunRequest, RunResult, SandboxUnavailable, ToolCaller
from everturn.wire.execution import Capability, GatewayCall, RunLimits, ToolReply

ROOT = Path(__file__).parents[2]
PYTHON = ROOT / ".venv-sandbox" / "bin" / "python"

Outputs = tuple[str, ...]
RunProgram = Callable[..., Awaitable[RunResult]]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.sandbox)


@pytest.fixture(scope="session")
def sandbox() -> BubblewrapSandbox:
    try:
        opened = asyncio.run(open_bubblewrap_sandbox(PYTHON))
    except SandboxUnavailable as unavailable:
        if os.environ.get("CI") == "true":
            pytest.fail(f"the sandbox is needed here: {unavailable}")
        pytest.skip(f"no sandbox: {unavailable}")
    check_installed_copies()
    return opened


def check_installed_copies() -> None:
    """The sandbox environment holds copies of our two packages; old ones would be tested in place of these."""
    [installed] = (ROOT / ".venv-sandbox" / "lib").glob("python*/site-packages")
    for package, parts in ((executor, ("*.py",)), (everturn, ("wire/framing.py", "wire/execution.py"))):
        source = Path(package.__path__[0])
        for file in itertools.chain.from_iterable(map(source.glob, parts)):
            copy = installed / source.name / file.relative_to(source)
            if not copy.exists() or not filecmp.cmp(file, copy, shallow=False):
                pytest.fail(f"{copy} is not the present {file.name}: run `make setup`")


@pytest.fixture
def run(sandbox: BubblewrapSandbox) -> RunProgram:
    """Runs a program with defaults that suit a test: no contract, no tools, ten seconds."""
    numbers = itertools.count(1)

    async def run_program(
        program: str,
        *,
        outputs: Outputs = (),
        inputs: dict[str, bytes | Path] | None = None,
        timeout_s: float = 10.0,
        limits: RunLimits | None = None,
        capability: Capability | None = None,
        call_tool: ToolCaller | None = None,
        stop: asyncio.Event | None = None,
    ) -> RunResult:
        request = RunRequest(
            execution_id=f"test-{os.getpid()}-{next(numbers)}",
            turn_id="turn_1",
            program=program,
            contract=tuple(ContractItem(path) for path in outputs),
            inputs=inputs or {},
            timeout_s=timeout_s,
            limits=limits or RunLimits(),
            capability=capability or Capability(),
        )
        return await sandbox.run(request, call_tool or refuse, stop=stop)

    return run_program


async def refuse(call: GatewayCall) -> ToolReply:
    return ToolReply(call.id, False, None, "not_allowed", "this test has no tools")
