"""The limits of a program in its own process, and an unconfined executor, which runs nothing."""

import json
import resource
import subprocess
import sys

import pytest

from everturn.execution.framing import FrameDecoder, encode_frame
from everturn.execution.messages import Booted, RunLimits, Start
from everturn.execution.records import build_message, parse_message
from executor.confine import MAX_PENDING_SIGNALS

LIMITS = RunLimits(file_bytes=1 << 20, open_files=50, processes=200, cpu_s=7)

CONFINE = """
import ctypes, errno, json, os, resource, sys
from everturn.execution.messages import RunLimits
from executor.confine import confine_program, hide_process
hide_process()
hidden = ctypes.CDLL(None).prctl(3, 0, 0, 0, 0)
confine_program(RunLimits(file_bytes=1 << 20, open_files=50, processes=200, cpu_s=7), 4 << 30)
"""
PRINT_LIMITS = """
names = ("AS", "CORE", "FSIZE", "MEMLOCK", "MSGQUEUE", "NOFILE", "NPROC", "CPU", "SIGPENDING")
print(json.dumps({
    "hidden": hidden,
    "shown": ctypes.CDLL(None).prctl(3, 0, 0, 0, 0),
    "leads its session": os.getsid(0) == os.getpid(),
    **{name: resource.getrlimit(getattr(resource, f"RLIMIT_{name}")) for name in names},
}))
"""


def run_confined(text: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-I", "-c", CONFINE + text], capture_output=True, text=True, check=False, timeout=20
    )


def test_a_program_is_under_its_limits_soft_and_hard_alike():
    limits = json.loads(run_confined(PRINT_LIMITS).stdout)

    assert (limits["AS"], limits["FSIZE"]) == ([4 << 30] * 2, [LIMITS.file_bytes] * 2)
    assert (limits["NOFILE"], limits["CPU"]) == ([LIMITS.open_files] * 2, [LIMITS.cpu_s, LIMITS.cpu_s + 1])
    assert limits["NPROC"] == [
        min(200, value) if value > 0 else 200 for value in resource.getrlimit(resource.RLIMIT_NPROC)
    ]
    assert limits["SIGPENDING"] == [MAX_PENDING_SIGNALS] * 2
    assert [limits[name] for name in ("CORE", "MEMLOCK", "MSGQUEUE")] == [[0, 0]] * 3


def test_a_program_leads_its_own_session():
    assert json.loads(run_confined(PRINT_LIMITS).stdout)["leads its session"]


def test_the_runner_hides_its_memory_and_the_program_shows_its_own():
    limits = json.loads(run_confined(PRINT_LIMITS).stdout)

    assert (limits["hidden"], limits["shown"]) == (0, 1)


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("kept = [open('/dev/null') for _ in range(60)]", "Too many open files"),
        ("kept = bytearray(5 << 30)", "MemoryError"),
        (
            "import signal, tempfile; signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
            "with tempfile.TemporaryFile() as f: f.write(b'x' * (2 << 20))",
            "File too large",
        ),
    ],
    ids=["open files", "address space", "file size"],
)
def test_arguments_beyond_a_limit_are_refused(text, answer):
    assert answer in run_confined(text).stderr


def test_a_limit_is_never_raised():
    text = "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (20, 20))\n" + CONFINE + PRINT_LIMITS

    done = subprocess.run([sys.executable, "-I", "-c", text], capture_output=True, text=True, check=False, timeout=20)

    assert json.loads(done.stdout)["NOFILE"] == [20, 20]


def test_outside_a_sandbox_the_executor_runs_nothing(tmp_path):
    written = tmp_path / "written"
    start = Start("run-1", f"open({str(written)!r}, 'w').close()", (), RunLimits(), "n", (), 1 << 30)

    done = subprocess.run(
        [sys.executable, "-I", "-m", "executor"],
        input=encode_frame(build_message(start)),
        capture_output=True,
        check=False,
        timeout=20,
    )

    [frame] = FrameDecoder().feed(done.stdout)
    assert "no seccomp filter is loaded" in parse_message(frame, Booted).failures
    assert done.returncode == 70
    assert not written.exists()


TAKE = """
import os, sys
from executor.channel import Channel, empty_input
from everturn.execution.messages import Stop
channel = Channel.replace_standard_streams()
empty_input()
print("printed")
print(repr(sys.stdin.read()), flush=True)
channel.send(Stop(channel.receive(Stop).reason))
"""


def test_a_program_finds_an_empty_input_and_prints_beside_the_line():
    frame = encode_frame({"kind": "stop", "reason": "timeout"})

    done = subprocess.run([sys.executable, "-I", "-c", TAKE], input=frame, capture_output=True, check=False, timeout=20)

    assert done.stdout == frame
    assert done.stderr == b"printed\n''\n"


REFUSE_OTHERS = """
import ctypes, os, socket, subprocess, sys
from executor.confine import find_failures, refuse_other_sockets
ctypes.CDLL(None).prctl(38, 1, 0, 0, 0)
refuse_other_sockets()

def open_socket(family, kind=socket.SOCK_STREAM):
    try:
        socket.socket(family, kind).close()
    except OSError as error:
        return error.errno
    return 0

print([open_socket(family) for family in (socket.AF_UNIX, socket.AF_INET, socket.AF_INET6, 40)])
print([open_socket(family, socket.SOCK_RAW) for family in (16, 17)])
ours, theirs = socket.socketpair()
print(ctypes.CDLL(None, use_errno=True).syscall(425, 1, 0), ctypes.get_errno())
print(subprocess.run([sys.executable, "-I", "-c", "import socket; socket.socket()"], capture_output=True).returncode)
"""


def test_with_the_filter_only_unix_sockets_can_be_opened_here_and_in_children():
    done = subprocess.run(
        [sys.executable, "-I", "-c", REFUSE_OTHERS], capture_output=True, text=True, check=False, timeout=20
    )

    assert done.stderr == ""
    assert done.stdout.splitlines() == ["[0, 1, 1, 1]", "[1, 1]", "-1 1", "1"]


FIND = """
import ctypes, sys
from executor import confine
ctypes.CDLL(None).prctl(38, 1, 0, 0, 0)
confine.check_confinement = lambda **found: ("a device",) if found["devices"] else ()
if sys.argv[1] == "without":
    confine.refuse_other_sockets = lambda: None
print(confine.find_failures(shares_network=True), confine.find_failures())
"""


@pytest.mark.parametrize(("filtered", "failures"), [("with", "()"), ("without", "it can open IPv4 sockets")])
def test_where_the_network_is_shared_sockets_are_checked_in_place_of_devices(filtered: str, failures: str):
    done = subprocess.run(
        [sys.executable, "-I", "-c", FIND, filtered], capture_output=True, text=True, check=False, timeout=20
    )

    assert done.stderr == ""
    shared, _, alone = done.stdout.strip().rpartition(" (")
    assert failures in shared
    assert "a device" in alone
