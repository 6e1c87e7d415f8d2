"""The profile in a real container: what the kernel then answers, also to a process that holds capabilities."""

import json
import os
import platform
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import docker
import pytest

from exec_supervisor.broker.seccomp_profile import build_profile

QUESTIONS = Path(__file__).parents[2] / "kernel_questions.py"
IMAGE = "everturn/executor:latest"
CAPABILITIES = ["MKNOD", "NET_RAW", "SYS_ADMIN", "SYS_BOOT", "SYS_CHROOT", "SYS_MODULE", "SYS_PTRACE", "SYS_TIME"]
"""With these an engine's container could do what the questions try: only the profile refuses it."""

LIBRARIES = """
import concurrent.futures, os, subprocess, sys
import matplotlib; matplotlib.use("agg")
import matplotlib.pyplot as plot
import numpy, pandas
os.chdir("/tmp")
with concurrent.futures.ThreadPoolExecutor(4) as pool:
    squares = list(pool.map(lambda n: numpy.linalg.inv(numpy.eye(50) * (n + 1))[0, 0], range(4)))
with concurrent.futures.ProcessPoolExecutor(2) as pool:
    lengths = list(pool.map(len, ["a", "bb"]))
pandas.DataFrame({"x": squares}).plot()
plot.savefig("chart.png")
print(lengths, os.path.getsize("chart.png") > 1000, subprocess.run(["/bin/echo", "fine"], capture_output=True).stdout)
"""

only_x86 = pytest.mark.skipif(platform.machine() != "x86_64", reason="the numbers of these calls are those of x86_64")


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    engine = cast("Any", docker)
    try:
        client = engine.DockerClient.from_env(timeout=60)
        client.images.get(IMAGE)
    except engine.errors.DockerException as error:
        if os.environ.get("CI") == "true":
            pytest.fail(f"an engine and the images are needed here: {error}")
        pytest.skip(f"no engine or no images (make images): {error}")
    yield client
    client.close()


@dataclass(frozen=True)
class Ended:
    status: int
    printed: str


def run_python(
    client: Any, arguments: list[str], capabilities: list[str] | None = None, *, network: bool = False
) -> Ended:
    """A Python in a container with our profile. Attached before it starts: an engine's log may be behind its end."""
    container = client.containers.create(
        IMAGE,
        ["-I", "-c", *arguments],
        entrypoint="python",
        user="0:0" if capabilities else "1001:1001",
        network_mode="none",
        read_only=True,
        tmpfs={"/tmp": "mode=1777,size=64m"},
        environment={"MPLCONFIGDIR": "/tmp"},
        cap_drop=["ALL"],
        cap_add=capabilities or [],
        security_opt=["no-new-privileges", f"seccomp={json.dumps(build_profile(network=network))}"],
    )
    try:
        output = container.attach(stream=True)
        container.start()
        printed = b"".join(output)
        return Ended(container.wait(timeout=30)["StatusCode"], printed.decode())
    finally:
        container.remove(force=True)


def ask(client: Any, question: str, *, network: bool = False) -> dict[str, str]:
    return json.loads(run_python(client, [QUESTIONS.read_text(), question], CAPABILITIES, network=network).printed)


def test_sockets_are_of_the_unix_family_or_refused(client: Any):
    answers = ask(client, "sockets")

    unix = {name for name in answers if name.startswith("1/")} | {"pair"}
    assert {answers[name] for name in unix - {"1/3"}} == {"done"}
    assert {answers[name] for name in answers.keys() - unix} == {"EPERM"}


def test_a_network_adds_tcp_over_ipv4_and_nothing_else(client: Any):
    more, usual = ask(client, "sockets", network=True), ask(client, "sockets")

    assert {name: answer for name, answer in more.items() if usual[name] != answer} == {"2/1": "done"}


def test_a_network_has_ordinary_options_and_none_that_loads_code(client: Any):
    answers = ask(client, "options", network=True)

    usual = {"reuse", "send buffer", "receive buffer", "keep-alive", "low water", "incoming CPU", "no delay"}
    assert {answers[name] for name in usual} == {"done"}
    assert {answers[name] for name in answers.keys() - usual} == {"EPERM"}
    assert len(answers.keys() - usual) == 8


@only_x86
def test_calls_that_lead_out_are_refused_also_to_the_powerful(client: Any):
    answers = ask(client, "calls")

    assert answers.pop("clone3") == "ENOSYS", "the C library then falls back to clone, whose flags can be seen"
    assert {name: answer for name, answer in answers.items() if answer != "EPERM"} == {}


@only_x86
def test_a_call_of_the_32_bit_kind_ends_the_process(client: Any):
    ended = run_python(client, [QUESTIONS.read_text(), "32 bit"], CAPABILITIES)

    assert ended == Ended(128 + signal.SIGSYS, "")


def test_threads_processes_pipes_and_fifos_still_work(client: Any):
    assert ask(client, "ordinary") == {
        "thread": "done",
        "process": "fine\n",
        "fork": "7",
        "pipe": "done",
        "fifo": "done",
    }


def test_libraries_thread_pools_and_process_pools_still_work(client: Any):
    assert run_python(client, [LIBRARIES]) == Ended(0, "[1, 2] True b'fine\\n'\n")
