"""A fork that a bad file has taken over: what it tries against the processes and files around it."""

import ctypes
import json
import os
import resource
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from ingress.attachments.structure.checker import build_fault, run_confined
from ingress.attachments.structure.confinement import NOBODY, hide_process

PTRACE_SEIZE = 0x4206
PR_SET_DUMPABLE = 4


def read_environment() -> object:
    return Path(f"/proc/{os.getppid()}/environ").read_bytes()


def list_descriptors() -> object:
    return os.listdir(f"/proc/{os.getppid()}/fd")


def read_descriptors() -> object:
    """Standard input and whatever else the checker had open, such as the next person's file."""
    return b"".join(_read(number) for number in range(64))


def _read(number: int) -> bytes:
    try:
        return os.read(number, 100)
    except OSError:
        return b""


def write_descriptors() -> object:
    """Forge the answer to the next file: beside its own answer only /dev/null may be open."""
    return [number for number in range(64) if number != 3 and _is_real(number)]


def _is_real(number: int) -> bool:
    try:
        return os.fstat(number).st_rdev != os.makedev(1, 3)
    except OSError:
        return False


def open_file() -> object:
    return Path("/etc/passwd").read_text()


def write_file() -> object:
    return Path("/tmp/left-by-a-checker").write_text("x") or True


def connect() -> object:
    return socket.socket()


def fork() -> object:
    if not os.fork():
        os._exit(0)
    return True


def trace() -> object:
    return ctypes.CDLL(None).ptrace(PTRACE_SEIZE, os.getppid(), 0, 0) == 0


def lift_limits() -> object:
    resource.setrlimit(resource.RLIMIT_NOFILE, (1000, 1000))
    return True


ATTACKS: tuple[Callable[[], object], ...] = (
    read_environment, list_descriptors, read_descriptors, write_descriptors, open_file, write_file, connect, fork,
    trace, lift_limits,
)  # fmt: skip


def try_attacks() -> bytes:
    """In the form of an answer, because a fork gets nothing else out."""
    return build_fault(" ".join(attack.__name__ for attack in ATTACKS if _works(attack)))


def _works(attack: Callable[[], object]) -> bool:
    try:
        return bool(attack())
    except (OSError, ValueError):
        return False


def test_a_fork_gets_nothing_of_the_checker_and_opens_nothing() -> None:
    assert json.loads(run_confined(try_attacks))["fault"] == ""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
@pytest.mark.parametrize(("hide", "is_read"), [(False, True), (True, False)])
def test_a_process_that_hides_is_not_read_by_others_of_its_user(hide: bool, is_read: bool) -> None:
    assert (run_in_fork(lambda: run_hidden(hide)) == 0) is is_read


def run_hidden(hide: bool) -> int:
    """What a child finds that looks into this process, which is nobody's now: 0 when it may read."""
    os.setresuid(NOBODY, NOBODY, NOBODY)
    ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 1, 0, 0, 0)
    if hide:
        hide_process()
    return run_in_fork(lambda: 0 if _works(read_environment) else 1)


def run_in_fork(work: Callable[[], int]) -> int:
    child = os.fork()
    if not child:
        status = 99
        try:
            status = work()
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_what_a_fork_says_comes_back() -> None:
    assert run_confined(lambda: build_fault("said")) == build_fault("said")
