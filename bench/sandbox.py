"""P9: how long a program waits for its first line, in each launcher of this machine, against plain processes.

A program reports the moment of its first line by its own monotonic clock, which all processes of a machine share; the
wait counts from the call of `Sandbox.run`. Baselines: the whole `python3 -c pass` of the sandbox's interpreter, the
same with the imports, and two plain hardened `docker run` side by side until both have ended. Without an engine, a
plain `bwrap ... python3 -c pass` replaces these, without a target. Every sample, also of the baselines, begins when the
pool is full again, so that none is measured while the next sandbox boots or the last one is removed.
"""

import asyncio
import contextlib
import io
import json
import os
import shutil
import sys
import tarfile
import tempfile
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from helpers.goals import Goal, Sample, build_goal, measure_medians, measure_ms, run_goals

from chat_proc.sandbox.bubblewrap import open_bubblewrap_sandbox
from chat_proc.sandbox.containers import BrokerAddress, open_broker_connection, open_container_sandbox
from chat_proc.sandbox.launching import SupervisedSandbox
from chat_proc.sandbox.pool import WarmPool
from chat_proc.sandbox.port import ContractItem, RunRequest, RunResult, SandboxUnavailable
from chat_proc.sandbox.supervised import BootedSupervisor
from everturn.execution.broker_messages import ListPairs, PairList
from everturn.execution.messages import GatewayCall, ToolReply
from everturn.execution.profiles import ExecutionProfile, Profiles
from everturn_local.settings import REPOSITORY

PYTHON = REPOSITORY / ".venv-sandbox" / "bin" / "python"
SAMPLES = 20
WARM, COLD = "default", "cold"
PROFILES: Profiles = {
    WARM: ExecutionProfile(warm=1, preload=("numpy", "pandas", "matplotlib.pyplot")),
    COLD: ExecutionProfile(),
}
IMPORTS = "import pandas, matplotlib.pyplot"
TELL_TIME = "import time; print(time.monotonic())"
TRAVEL_BYTES = 16 << 20
COPY = "import shutil; shutil.copy('in.bin', OUTPUT_DIR + '/out.bin')"
IMAGE = "everturn/executor:latest"
HARDENED = (
    *("docker", "run", "--rm", "--network", "none", "--read-only", "--cap-drop", "ALL"),
    *("--security-opt", "no-new-privileges", "--user", "1001:1001", "--memory", "1g", "--memory-swap", "1g"),
    *("--pids-limit", "64", "--cpus", "1", "--log-driver", "none", "--tmpfs", "/workspace/work"),
    *("--entrypoint", "python3", IMAGE, "-c", "pass"),
)
BROKER = (sys.executable, "-I", "-m", "exec_supervisor", "broker")
CHECK_EVERY_S = 0.05
ANSWER_TIMEOUT_S = 10.0
_numbers = count(1)


@dataclass(frozen=True, slots=True)
class Rig:
    """A launcher to measure. `wait_warm` returns when its pool is full."""

    name: str
    sandbox: SupervisedSandbox
    wait_warm: Callable[[], Awaitable[object]]


@dataclass(frozen=True, slots=True)
class Baseline:
    """What a cold start is compared with, and the required ratio; None if it is only informational."""

    name: str
    sample: Sample
    target: float | None


def measure(samples: int) -> list[Goal]:
    return asyncio.run(measure_launchers(samples))


async def measure_launchers(samples: int) -> list[Goal]:
    cold = await choose_cold_baseline()
    goals: list[Goal] = []
    for open_rig in (open_bubblewrap_rig, open_containers_rig):
        try:
            async with open_rig() as rig:
                goals += await measure_rig(rig, cold, samples)
        except SandboxUnavailable as unavailable:
            print(f"not measured: {unavailable}", file=sys.stderr)
    return goals


async def measure_rig(rig: Rig, cold: Baseline, samples: int) -> list[Goal]:
    data = os.urandom(TRAVEL_BYTES)

    def when_quiet(sample: Sample) -> Sample:
        async def take() -> float:
            await rig.wait_warm()
            return await sample()

        return take

    subjects: list[Sample] = [
        lambda: measure_process_ms([str(PYTHON), "-c", "pass"]),
        lambda: measure_start_ms(rig.sandbox, TELL_TIME, WARM),
        lambda: measure_process_ms([str(PYTHON), "-c", IMPORTS]),
        lambda: measure_start_ms(rig.sandbox, f"{IMPORTS}; {TELL_TIME}", WARM),
        cold.sample,
        lambda: measure_start_ms(rig.sandbox, TELL_TIME, COLD),
        lambda: measure_ms(lambda: asyncio.to_thread(pack_and_unpack, data)),
        lambda: measure_ms(lambda: carry_files(rig.sandbox, data)),
    ]
    host, warm, host_imports, imports, plain, cold_start, packed, travelled = await measure_medians(
        [when_quiet(subject) for subject in subjects], samples, warmups=1
    )
    mib = TRAVEL_BYTES >> 20
    return [
        build_goal(f"P9 {rig.name}: warm start vs python3 -c pass, ms", warm, host, 0.5),
        build_goal(f"P9 {rig.name}: warm start with pandas and matplotlib vs the host's", imports, host_imports, 0.1),
        build_goal(f"P9 {rig.name}: cold start vs {cold.name}, ms", cold_start, plain, cold.target),
        build_goal(f"{rig.name}: a warm run with {mib} MiB in and out vs tar in memory, ms", travelled, packed),
    ]


async def measure_start_ms(sandbox: SupervisedSandbox, program: str, profile: str) -> float:
    """From the call to the program's first line after its imports."""
    began = time.monotonic()
    result = await run_program(sandbox, RunRequest(name_run(), "turn_1", program, (), profile=profile))
    return (float(result.user_out_tail) - began) * 1_000


async def carry_files(sandbox: SupervisedSandbox, data: bytes) -> None:
    request = RunRequest(name_run(), "turn_1", COPY, (ContractItem("out.bin"),), {"in.bin": data}, profile=WARM)
    result = await run_program(sandbox, request)
    assert result.artifacts[0].body == data


async def run_program(sandbox: SupervisedSandbox, request: RunRequest) -> RunResult:
    result = await sandbox.run(request, refuse)
    assert result.ok, result.report_text
    return result


async def refuse(call: GatewayCall) -> ToolReply:
    return ToolReply(call.id, False, None, "not_allowed", "")


def name_run() -> str:
    return f"bench-{os.getpid()}-{next(_numbers)}"


async def measure_process_ms(command: Sequence[str]) -> float:
    async def run() -> None:
        process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.DEVNULL)
        assert await process.wait() == 0

    return await measure_ms(run)


def pack_and_unpack(data: bytes) -> None:
    """What the files cost at least, there and back: written into a tar and read from it."""
    for _ in range(2):
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w") as tar:
            member = tarfile.TarInfo("file")
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
        packed.seek(0)
        with tarfile.open(fileobj=packed) as tar:
            file = tar.extractfile("file")
            assert file is not None and len(file.read()) == len(data)


async def choose_cold_baseline() -> Baseline:
    if await has_images():
        return Baseline("two docker run", lambda: measure_ms(run_two), 1.3)
    print("no engine with our images answers: cold starts are compared with a plain bwrap", file=sys.stderr)
    return Baseline("plain bwrap", lambda: measure_process_ms(build_plain_bwrap()), None)


async def run_two() -> None:
    await asyncio.gather(measure_process_ms(HARDENED), measure_process_ms(HARDENED))


def build_plain_bwrap() -> list[str]:
    shown = ("--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp")
    shown += ("--ro-bind", str(REPOSITORY), str(REPOSITORY))  # it may lie in /tmp
    return ["bwrap", "--unshare-all", "--die-with-parent", "--cap-drop", "ALL", *shown, str(PYTHON), "-c", "pass"]


async def has_images() -> bool:
    if shutil.which("docker") is None:
        return False
    quiet = asyncio.subprocess.DEVNULL
    process = await asyncio.create_subprocess_exec("docker", "image", "inspect", IMAGE, stdout=quiet, stderr=quiet)
    return await process.wait() == 0


class Noting:
    """A pool that is not `full` any more as soon as a run takes its only supervisor; the pool sets it again."""

    def __init__(self, pool: WarmPool, full: asyncio.Event) -> None:
        self._pool = pool
        self._full = full

    def take(self, profile: str, run_name: str) -> contextlib.AbstractAsyncContextManager[BootedSupervisor]:
        if profile == WARM:
            self._full.clear()
        return self._pool.take(profile, run_name)


@contextlib.asynccontextmanager
async def open_bubblewrap_rig() -> AsyncGenerator[Rig]:
    opened = await open_bubblewrap_sandbox(PYTHON, PROFILES)
    full = asyncio.Event()
    pool = WarmPool(opened.launcher, {WARM: 1}, on_full=full.set)
    filling = asyncio.create_task(pool.run())

    try:
        yield Rig("bubblewrap", opened.with_launcher(Noting(pool, full)), full.wait)
    finally:
        filling.cancel()
        await asyncio.wait([filling])


@contextlib.asynccontextmanager
async def open_containers_rig() -> AsyncGenerator[Rig]:
    """With a broker of this bench's own, which ends its pairs when it is stopped."""
    if not await has_images():
        raise SandboxUnavailable("No container engine with our images answers.", "make images")
    with tempfile.TemporaryDirectory() as folder:
        socket = Path(folder) / "broker.sock"
        profiles = {name: profile.model_dump(mode="json") for name, profile in PROFILES.items()}
        env = {
            **os.environ,
            "BROKER_SOCKET": str(socket),
            "EXECUTION_PROFILES": json.dumps(profiles),
            "LOG_LEVEL": "error",
        }
        process = await asyncio.create_subprocess_exec(*BROKER, env=env, stdout=asyncio.subprocess.PIPE)
        try:
            assert process.stdout is not None and await process.stdout.readline(), "the broker did not start"
            address = BrokerAddress(f"unix://{socket}", path=str(socket))
            sandbox = await open_container_sandbox(address)
            yield Rig("containers", sandbox, lambda: wait_for_warm_pair(address))
        finally:
            process.terminate()
            await process.wait()


async def wait_for_warm_pair(address: BrokerAddress) -> None:
    """The pair that is kept warm waits for its run, and no other is left."""
    states: list[str] = []
    while states != ["warm"]:
        await asyncio.sleep(CHECK_EVERY_S)
        async with open_broker_connection(address) as line:
            listed = await line.request(ListPairs({}), PairList, timeout_s=ANSWER_TIMEOUT_S)
            states = [pair.state for pair in listed.pairs]


if __name__ == "__main__":
    sys.exit(run_goals(__doc__, measure, samples=SAMPLES))
