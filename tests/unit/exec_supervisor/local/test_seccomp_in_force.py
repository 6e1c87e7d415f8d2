"""The filter loaded into an ordinary process of this machine, without any other wall: what the kernel then answers."""

import json
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from exec_supervisor.local.seccomp import build_filter

QUESTIONS = Path(__file__).parents[3] / "sandbox" / "kernel_questions.py"

only_x86 = pytest.mark.skipif(platform.machine() != "x86_64", reason="the numbers of these calls are those of x86_64")


def load_and_ask(question: str, *, network: bool = False) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-I", str(QUESTIONS), question],
        input=build_filter(network=network).hex(),
        capture_output=True,
        text=True,
        check=False,
        timeout=20,
    )


def ask(question: str, *, network: bool = False) -> dict[str, str]:
    done = load_and_ask(question, network=network)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_sockets_are_of_the_unix_family_or_refused():
    answers = ask("sockets")

    unix = {name for name in answers if name.startswith("1/")} | {"pair"}
    assert {answers[name] for name in unix - {"1/3"}} == {"done"}
    assert {answers[name] for name in answers.keys() - unix} == {"EPERM"}


def test_a_network_adds_tcp_over_ipv4_and_nothing_else():
    more, usual = ask("sockets", network=True), ask("sockets")

    assert {name: answer for name, answer in more.items() if usual[name] != answer} == {"2/1": "done"}
    assert ask("calls", network=True) == ask("calls")


def test_a_network_has_ordinary_options_and_none_that_loads_code():
    answers = ask("options", network=True)

    usual = {"reuse", "send buffer", "receive buffer", "keep-alive", "low water", "incoming CPU", "no delay"}
    assert {answers[name] for name in usual} == {"done"}
    assert {answers[name] for name in answers.keys() - usual} == {"EPERM"}
    assert len(answers.keys() - usual) == 8


@only_x86
def test_calls_that_leave_the_sandbox_are_refused():
    answers = ask("calls")

    assert answers.pop("clone3") == "ENOSYS", "the C library then falls back to clone, whose flags can be seen"
    assert {name: answer for name, answer in answers.items() if answer != "EPERM"} == {}


def test_threads_processes_pipes_and_fifos_still_work():
    assert ask("ordinary") == {
        "thread": "done",
        "process": "fine\n",
        "fork": "7",
        "pipe": "done",
        "fifo": "done",
    }


@only_x86
def test_a_call_of_the_32_bit_kind_ends_the_process():
    done = load_and_ask("32 bit")

    assert "survived" not in done.stdout
