"""A fork that a bad file has taken over: what it tries against the processes and files around it."""

import ctypes
import os
import resource
import signal
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from everturn.confinement.fork import NOBODY, ForkLimits, ForkResult, hide_process, run_confined

PTRACE_SEIZE = 0x4206
PR_SET_DUMPABLE = 4
LIMITS = ForkLimits(memory_bytes=64 * 2**20, cpu_s=2.0, wall_s=10.0, answer_bytes=2048)


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


def open_instead_of_closed() -> object:
    """The limit of descriptors lets one be opened for each that is closed."""
    os.close(0)
    return os.open("/etc/passwd", os.O_RDONLY) >= 0


def connect_instead_of_closed() -> object:
    os.close(1)
    return socket.create_connection(("127.0.0.1", 9), timeout=0.1)


def resolve_name() -> object:
    return socket.getaddrinfo("localhost", 80)


def look_around() -> object:
    return os.listdir("/") or os.stat("/etc/passwd")


def become_immortal() -> object:
    """Ignore the signals of the time limits, or put them off."""
    signal.signal(signal.SIGPROF, signal.SIG_IGN)
    return True


def hold_signals_back() -> object:
    return signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGPROF, signal.SIGALRM}) is not None


def stop_the_clock() -> object:
    return signal.setitimer(signal.ITIMER_REAL, 0)


def kill_parent() -> object:
    os.kill(os.getppid(), signal.SIGSTOP)
    return True


def start_program() -> object:
    os.execv("/bin/true", ["true"])


def map_a_file_without_a_name() -> object:
    return os.memfd_create("x") >= 0


def lift_limits() -> object:
    resource.setrlimit(resource.RLIMIT_NOFILE, (1000, 1000))
    return True


ATTACKS: tuple[Callable[[], object], ...] = (
    read_environment, list_descriptors, read_descriptors, write_descriptors, open_file, write_file, connect, fork,
    trace, lift_limits, open_instead_of_closed, connect_instead_of_closed, resolve_name, look_around,
    become_immortal, hold_signals_back, stop_the_clock, kill_parent, start_program, map_a_file_without_a_name,
)  # fmt: skip


def try_attacks() -> bytes:
    return " ".join(attack.__name__ for attack in ATTACKS if _works(attack)).encode()


def _works(attack: Callable[[], object]) -> bool:
    try:
        return bool(attack())
    except (OSError, ValueError, LookupError):
        return False


def test_a_fork_gets_nothing_of_the_checker_and_opens_nothing() -> None:
    assert run_confined(try_attacks, LIMITS) == ForkResult("answered", b"")


def test_a_fork_reads_nothing_of_the_worker(tmp_path: Path) -> None:
    """Secrets, stored objects, and the environment: in a container all of them belong to the same user."""
    secret, stored = tmp_path / "database_password", tmp_path / "object"
    for file in (secret, stored):
        file.write_text("x")
        file.chmod(0o444)
    tmp_path.chmod(0o755)

    def look() -> bytes:
        found = [_works(file.read_bytes) for file in (secret, stored)]
        found += [_works(Path(f"/proc/{pid}/environ").read_bytes) for pid in ("self", os.getppid(), 1)]
        return repr(any(found)).encode()

    assert run_confined(look, LIMITS) == ForkResult("answered", b"False")


def test_a_fork_that_takes_too_long_is_ended() -> None:
    def spin() -> bytes:
        while True:
            pass

    assert run_confined(spin, ForkLimits(64 * 2**20, 0.05, 10.0, 100)) == ForkResult("time")


def test_a_fork_that_takes_too_much_memory_fails() -> None:
    assert run_confined(lambda: b"x" * 2**28, LIMITS) == ForkResult("failed")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
@pytest.mark.parametrize(("hide", "is_read"), [(False, True), (True, False)])
def test_a_process_that_hides_is_not_read_by_others_of_its_user(hide: bool, is_read: bool) -> None:
    assert (run_in_fork(lambda: run_hidden(hide)) == 0) is is_read


def run_hidden(hide: bool) -> int:
    """The result of a child that tries to read this process, which runs as "nobody": 0 if it can."""
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
    assert run_confined(lambda: b"said", LIMITS) == ForkResult("answered", b"said")
