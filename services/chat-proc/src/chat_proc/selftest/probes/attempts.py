"""Building blocks of attempts to escape from a sandbox. It runs inside one, so it needs only the standard library."""

import ctypes
import errno
import json
import os
import platform
import sys
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

REFUSALS: Final = frozenset({errno.EPERM, errno.EACCES, errno.ENOSYS})
"""Error codes of a system call filter. Any other code came from the kernel code that the filter should protect."""

_MAX_DETAIL_CHARS: Final = 200
LIBC: Final = ctypes.CDLL(None, use_errno=True)
Argument = int | bytes | ctypes.Array[ctypes.c_char] | ctypes.Structure

_X86_64: Final = {
    "add_key": 248, "bpf": 321, "clock_settime": 227, "clone": 56, "delete_module": 176, "fanotify_init": 300,
    "finit_module": 313, "init_module": 175, "ioperm": 173, "iopl": 172, "kcmp": 312, "kexec_load": 246,
    "keyctl": 250, "lookup_dcookie": 212, "mbind": 237, "memfd_create": 319, "migrate_pages": 256, "modify_ldt": 154,
    "mount": 165, "move_pages": 279, "msgget": 68, "name_to_handle_at": 303, "open_by_handle_at": 304,
    "perf_event_open": 298, "personality": 135, "pivot_root": 155, "process_vm_readv": 310, "process_vm_writev": 311,
    "ptrace": 101, "quotactl": 179, "reboot": 169, "request_key": 249, "semget": 64, "set_mempolicy": 238,
    "sethostname": 170, "setns": 308, "settimeofday": 164, "shmget": 29, "socket": 41, "swapon": 167, "syslog": 103,
    "umount2": 166, "unshare": 272, "userfaultfd": 323, "vhangup": 153,
}  # fmt: skip
_AARCH64: Final = {
    "add_key": 217, "bpf": 280, "clock_settime": 112, "clone": 220, "delete_module": 106, "fanotify_init": 262,
    "finit_module": 273, "init_module": 105, "kcmp": 272, "kexec_load": 104, "keyctl": 219, "lookup_dcookie": 18,
    "mbind": 235, "memfd_create": 279, "migrate_pages": 238, "mount": 40, "move_pages": 239, "msgget": 186,
    "name_to_handle_at": 264, "open_by_handle_at": 265, "perf_event_open": 241, "personality": 92, "pivot_root": 41,
    "process_vm_readv": 270, "process_vm_writev": 271, "ptrace": 117, "quotactl": 60, "reboot": 142,
    "request_key": 218, "semget": 190, "set_mempolicy": 237, "sethostname": 161, "setns": 268, "settimeofday": 170,
    "shmget": 194, "socket": 198, "swapon": 224, "syslog": 116, "umount2": 39, "unshare": 97, "userfaultfd": 282,
    "vhangup": 58,
}  # fmt: skip
_EVERYWHERE: Final = {
    "io_uring_setup": 425, "io_uring_enter": 426, "io_uring_register": 427, "open_tree": 428, "move_mount": 429,
    "fsopen": 430, "fsmount": 432, "fspick": 433, "clone3": 435, "pidfd_getfd": 438, "process_madvise": 440,
    "mount_setattr": 442, "memfd_secret": 447,
}  # fmt: skip
_NUMBERS: Final = {"x86_64": {**_X86_64, **_EVERYWHERE}, "aarch64": {**_AARCH64, **_EVERYWHERE}}


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What exists outside and must stay unreachable, so that attempts don't fail for lack of knowledge.

    `canary` is a secret text of the worker's environment and of `host_file`; `neighbour` one of another live run.
    `port` and `abstract` listen on the host. For the gateway: `granted` is the only tool that this run may call,
    `nonce` its own, and `nonces` are those of other runs; `gateway` is where it listens.
    """

    canary: str
    neighbour: str
    port: int
    abstract: str
    host_file: str
    engine_sockets: tuple[str, ...]
    granted: str
    nonces: tuple[str, ...]
    nonce: str = ""
    gateway: str = "/run/everturn/gateway.sock"


class Denied(Exception):
    """The attempt ran and found nothing useful."""


class Reached(Exception):
    """The kernel considered a request that a filter should have refused unseen."""


Attempt = Callable[[Surroundings], object]


class Group:
    """Attempts of one kind, by the name in the table. An attempt whose function returns got through."""

    def __init__(self, title: str) -> None:
        self.title = title
        self.attempts: dict[str, Attempt] = {}

    def attempt(self, function: Attempt) -> Attempt:
        """Register under the function's name, with spaces."""
        self.attempts[function.__name__.strip("_").replace("_", " ")] = function
        return function


def run(*groups: Group, nonce: str = "") -> None:
    """Try one after another. Each is reported at once, because the next may end the process."""
    around = replace(load_surroundings(), nonce=nonce)
    for group in groups:
        for name, function in group.attempts.items():
            _report(group, name, *try_one(function, around))


def run_together(group: Group, nonce: str) -> None:
    """Try all of a group concurrently: for attempts that only wait."""
    around = replace(load_surroundings(), nonce=nonce)
    with ThreadPoolExecutor(len(group.attempts)) as threads:
        tried = {name: threads.submit(try_one, function, around) for name, function in group.attempts.items()}
    for name, outcome in tried.items():
        _report(group, name, *outcome.result())


def load_surroundings(place: Path = Path("surroundings.json")) -> Surroundings:
    """Load what the worker wrote into the work folder."""
    read = json.loads(place.read_text(encoding="utf-8"))
    return Surroundings(
        canary=read["canary"],
        neighbour=read["neighbour"],
        port=read["port"],
        abstract=read["abstract"],
        host_file=read["host_file"],
        engine_sockets=tuple(read["engine_sockets"]),
        granted=read["granted"],
        nonces=tuple(read["nonces"]),
        gateway=read["gateway"],
    )


def call(name: str, *arguments: Argument) -> int:
    """Make a raw system call. Raises OSError if the filter refuses it, Reached if the kernel itself does.

    A call that this architecture lacks counts as refused.
    """
    numbers = _NUMBERS[platform.machine()]
    if name not in numbers:
        raise OSError(errno.ENOSYS, f"no {name} on this architecture")
    return call_number(numbers[name], *arguments)


def call_number(number: int, *arguments: Argument) -> int:
    """Make a raw system call by its number."""
    given = [ctypes.c_long(a) if isinstance(a, int) else _address(a) for a in arguments]
    result = int(LIBC.syscall(ctypes.c_long(number), *given))
    if result < 0:
        code = ctypes.get_errno()
        if code not in REFUSALS:
            raise Reached(f"system call {number}: {os.strerror(code)}")
        raise OSError(code, os.strerror(code))
    return result


def try_each(functions: Iterable[Callable[[], object]]) -> object:
    """The result of the first that gets through; raises the last refusal if none does."""
    last: OSError | None = None
    for function in functions:
        try:
            return function()
        except OSError as refusal:
            last = refusal
    raise last or Denied("there is nothing to try")


def try_in_child(function: Callable[[], object]) -> None:
    """Run in a child what may end the process: raises PermissionError if it does, or on an OSError there."""
    pid = os.fork()
    if pid == 0:
        try:
            function()
        except OSError:
            os._exit(1)
        os._exit(0)
    status = os.waitpid(pid, 0)[1]
    if os.WIFSIGNALED(status):
        raise PermissionError(f"the process was ended by signal {os.WTERMSIG(status)}")
    if status:
        raise PermissionError("refused")


def _address(argument: bytes | ctypes.Array[ctypes.c_char] | ctypes.Structure) -> object:
    return ctypes.c_char_p(argument) if isinstance(argument, bytes) else ctypes.byref(argument)


def _report(group: Group, name: str, held: bool, detail: str) -> None:
    sys.stdout.write(json.dumps([group.title, name, held, detail[:_MAX_DETAIL_CHARS]]) + "\n")
    sys.stdout.flush()


def try_one(function: Attempt, around: Surroundings) -> tuple[bool, str]:
    """Whether the attempt was denied, and how."""
    try:
        got = function(around)
    except (OSError, Denied) as denial:
        return True, f"{type(denial).__name__}: {denial}"
    except Reached as reached:
        return False, str(reached)
    return False, "it succeeded" if got is None else f"it got {str(got)[:100]}"
