"""How long a sandbox takes to start until it waits for its run, in each launcher of this machine, each layout of
containers and with gVisor, against a plain container of the same engine.

The plain container has the executor's image and the usual restrictions, and is started by the same calls of the
engine: create, attach, start. It counts until its `python -c` has printed a line. All are cold starts. The subjects are
measured alternately, so that noise affects all of them; the end of each is awaited, and not counted. Without an engine,
the baseline is the whole `python3 -c pass` of the sandbox's interpreter.

Pods and tasks of Fargate are those of the stand-ins of the tests: their containers are processes in bubblewrap, so they
show what broker, supervisor and driver take, and nothing of a scheduler, an image or a machine that AWS starts. Nobody
is connected to a task, so it counts until the end of an empty program is known, from the first request on.
"""

import asyncio
import contextlib
import json
import os
import secrets
import shutil
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Mapping
from pathlib import Path

from helpers.fargate import run_fargate
from helpers.goals import Goal, Sample, build_goal, measure_medians, run_goals
from helpers.remote_engine_contract import prepare
from helpers.task_container import open_containers as open_task_containers
from kubernetes_cluster.cluster import Cluster

from chat_proc.sandbox.bubblewrap import open_bubblewrap_sandbox
from chat_proc.sandbox.containers import BrokerAddress, open_broker_connection, open_container_sandbox
from chat_proc.sandbox.launching import Launcher
from chat_proc.sandbox.port import SandboxUnavailable
from chat_proc.sandbox.remote.ecs import open_ecs_engine
from everturn.execution.broker_messages import ListPairs, PairList
from everturn.execution.profiles import DEFAULT_PROFILE, ExecutionProfile
from everturn_local.settings import REPOSITORY, load_environment
from exec_supervisor.broker.docker_engine import DockerEngine
from exec_supervisor.broker.engine import EngineDown, EngineRefused

PYTHON = REPOSITORY / ".venv-sandbox" / "bin" / "python"
SAMPLES = 25
BROKER = (sys.executable, "-I", "-m", "exec_supervisor", "broker")
USUAL_ENGINE = "unix:///var/run/docker.sock"
IMAGES = {
    name: os.environ.get(f"BENCH_{name.upper()}", ExecutionProfile.model_fields[name].default)
    for name in ("executor_image", "supervisor_image")
}
"""Other images than the default ones can be given in the environment."""

PLAIN: dict[str, object] = {
    "Image": IMAGES["executor_image"],
    "Entrypoint": ["/opt/everturn/bin/python", "-I", "-c", "print('started')"],
    "AttachStdout": True,
    "User": "1001:1001",
    "HostConfig": {
        "AutoRemove": True,
        "CapDrop": ["ALL"],
        "SecurityOpt": ["no-new-privileges"],
        "ReadonlyRootfs": True,
        "NetworkMode": "none",
        "IpcMode": "none",
        "Memory": 1 << 30,
        "MemorySwap": 1 << 30,
        "PidsLimit": 64,
        "NanoCpus": 1_000_000_000,
        "LogConfig": {"Type": "none"},
        "Tmpfs": {"/workspace/work": "rw,nosuid,nodev,noexec,size=16m"},
    },
}
GVISOR = "runsc"
CHECK_EVERY_S = 0.02
ANSWER_TIMEOUT_S = 10.0


def measure(samples: int) -> list[Goal]:
    return asyncio.run(measure_starts(samples))


async def measure_starts(samples: int) -> list[Goal]:
    async with contextlib.AsyncExitStack() as stack:
        subjects: dict[str, Sample] = {}
        for name, open_one in (
            ("bubblewrap", open_bubblewrap),
            ("containers", lambda: open_containers("pair")),
            ("containers, combined", lambda: open_containers("combined")),
            (f"containers with {GVISOR}", lambda: open_containers("pair", runtime=GVISOR)),
            (f"containers with {GVISOR}, combined", lambda: open_containers("combined", runtime=GVISOR)),
            ("Pods of a stand-in", open_pods),
            ("a whole task of a stand-in of Fargate", open_tasks),
        ):
            try:
                subjects[name] = await stack.enter_async_context(open_one())
            except SandboxUnavailable as unavailable:
                print(f"not measured: {name}: {unavailable}", file=sys.stderr)
        baseline, plain = "a plain container", await stack.enter_async_context(open_plain())
        try:
            await plain()
        except (EngineDown, EngineRefused) as error:
            print(f"no plain container: {type(error).__name__}: {error}", file=sys.stderr)
            baseline, plain = "python3 -c pass", measure_python
        base, *taken = await measure_medians([plain, *subjects.values()], samples, warmups=2)
    return [
        build_goal(f"{name}: cold start vs {baseline}, ms", ours, base)
        for name, ours in zip(subjects, taken, strict=True)
    ]


@contextlib.asynccontextmanager
async def open_bubblewrap() -> AsyncGenerator[Sample]:
    launcher = (await open_bubblewrap_sandbox(PYTHON, {DEFAULT_PROFILE: ExecutionProfile()})).launcher
    yield lambda: measure_start(launcher)


@contextlib.asynccontextmanager
async def open_containers(layout: str, *, runtime: str = "") -> AsyncGenerator[Sample]:
    profiles = json.dumps({DEFAULT_PROFILE: {**IMAGES, "runtime": runtime}})
    async with open_broker({"BROKER_LAYOUT": layout, "EXECUTION_PROFILES": profiles}) as sample:
        yield sample


@contextlib.asynccontextmanager
async def open_pods() -> AsyncGenerator[Sample]:
    check_stand_ins()
    with tempfile.TemporaryDirectory() as folder, Cluster(Path(folder)) as cluster:
        async with open_broker(cluster.settings) as sample:
            yield sample


@contextlib.asynccontextmanager
async def open_broker(settings: Mapping[str, str]) -> AsyncGenerator[Sample]:
    """A broker of this bench's own, which ends its pairs when it is stopped."""
    with tempfile.TemporaryDirectory() as folder:
        socket = Path(folder) / "broker.sock"
        env = {**load_environment(), "BROKER_SOCKET": str(socket), "LOG_LEVEL": "error", **settings}
        process = await asyncio.create_subprocess_exec(*BROKER, env=env, stdout=asyncio.subprocess.PIPE)
        try:
            assert process.stdout is not None and await process.stdout.readline(), "the broker did not start"
            address = BrokerAddress(f"unix://{socket}", path=str(socket))
            launcher = (await open_container_sandbox(address)).launcher

            async def sample() -> float:
                took_ms = await measure_start(launcher)
                await wait_for_removal(address)
                return took_ms

            yield sample
        finally:
            process.terminate()
            await process.wait()


@contextlib.asynccontextmanager
async def open_tasks() -> AsyncGenerator[Sample]:
    check_stand_ins()
    with (
        tempfile.TemporaryDirectory() as folder,
        open_task_containers(Path(folder)) as containers,
        run_fargate(containers.start) as fargate,
    ):
        os.environ.update(fargate.environment)
        async with open_ecs_engine(fargate.place("bench")) as engine:

            async def sample() -> float:
                request, prepared = await prepare("pass")
                began = time.perf_counter()
                task = await engine.start(prepared.run)
                while (await engine.check([task]))[task].phase != "ended":  # noqa: ASYNC110 - an engine does not notify
                    await asyncio.sleep(CHECK_EVERY_S)
                took_ms = (time.perf_counter() - began) * 1_000
                await engine.discard(request.execution_id)
                return took_ms

            yield sample


def check_stand_ins() -> None:
    """Raises SandboxUnavailable if the containers of the stand-ins can't run here."""
    if os.geteuid() or not shutil.which("bwrap"):
        raise SandboxUnavailable("The containers of the stand-ins need root and bubblewrap.")


async def measure_start(launcher: Launcher) -> float:
    began = time.perf_counter()
    async with launcher.take(DEFAULT_PROFILE, f"bench-{secrets.token_hex(4)}"):
        return (time.perf_counter() - began) * 1_000


async def wait_for_removal(address: BrokerAddress) -> None:
    left = 1
    while left:
        await asyncio.sleep(CHECK_EVERY_S)
        async with open_broker_connection(address) as line:
            left = (await line.request(ListPairs({}), PairList, timeout_s=ANSWER_TIMEOUT_S)).total


@contextlib.asynccontextmanager
async def open_plain() -> AsyncGenerator[Sample]:
    with contextlib.closing(DockerEngine(load_environment().get("DOCKER_HOST") or USUAL_ENGINE)) as engine:

        async def sample() -> float:
            name = f"everturn-bench-{secrets.token_hex(8)}"
            began = time.perf_counter()
            await engine.create(name, PLAIN)
            line = await engine.attach(name)
            with contextlib.closing(line):
                await engine.start(name)
                assert await line.read(), line.errors
                took_ms = (time.perf_counter() - began) * 1_000
                while await line.read():
                    pass
            return took_ms

        yield sample


async def measure_python() -> float:
    began = time.perf_counter()
    process = await asyncio.create_subprocess_exec(str(PYTHON), "-c", "pass")
    assert await process.wait() == 0
    return (time.perf_counter() - began) * 1_000


if __name__ == "__main__":
    sys.exit(run_goals(__doc__, measure, samples=SAMPLES))
