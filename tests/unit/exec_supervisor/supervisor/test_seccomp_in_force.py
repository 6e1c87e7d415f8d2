"""The filter loaded into an ordinary process of this machine, without any other wall: what the kernel then answers."""

import json
import platform
import subprocess
import sys

import pytest

from exec_supervisor.supervisor.seccomp import build_filter

LOAD = """
import ctypes, errno, json, os, socket, struct, subprocess, sys, threading

libc = ctypes.CDLL(None, use_errno=True)

def load(program):
    class Filter(ctypes.Structure):
        _fields_ = [("length", ctypes.c_ushort), ("code", ctypes.c_char_p)]
    instructions = Filter(len(program) // 8, program)
    assert libc.prctl(38, 1, 0, 0, 0) == 0
    assert libc.prctl(22, 2, ctypes.byref(instructions), 0, 0) == 0, os.strerror(ctypes.get_errno())

def told(action):
    try:
        action()
    except OSError as error:
        return errno.errorcode[error.errno]
    return "done"

def call(number, *arguments):
    def action():
        if libc.syscall(number, *arguments) == -1:
            raise OSError(ctypes.get_errno(), "")
    return action

answers = {}
load(bytes.fromhex(sys.stdin.read()))
"""

ASK_SOCKETS = """
for family in range(0, 46):
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_RAW):
        answers[f"{int(family)}/{int(kind)}"] = told(lambda: socket.socket(family, kind).close())
answers["pair"] = told(lambda: [end.close() for end in socket.socketpair()])
print(json.dumps(answers))
"""

ASK_CALLS = """
numbers = {"ptrace": 101, "unshare": 272, "mount": 165, "umount2": 166, "chroot": 161, "pivot_root": 155, "setns": 308,
           "keyctl": 250, "add_key": 248, "request_key": 249, "bpf": 321, "perf_event_open": 298, "userfaultfd": 323,
           "process_vm_readv": 310, "process_vm_writev": 311, "io_uring_setup": 425, "io_uring_enter": 426,
           "io_uring_register": 427, "open_tree": 428, "move_mount": 429, "fsopen": 430, "pidfd_getfd": 438,
           "mount_setattr": 442, "memfd_create": 319, "memfd_secret": 447, "shmget": 29, "msgget": 68, "semget": 64,
           "init_module": 175, "kexec_load": 246, "reboot": 169, "open_by_handle_at": 304, "personality": 135,
           "clone3": 435}
for name, number in numbers.items():
    answers[name] = told(call(number, 0, 0, 0, 0, 0))
for name, flag in {"user": 0x10000000, "net": 0x40000000, "mount": 0x20000, "pid": 0x20000000}.items():
    answers[f"clone new {name}"] = told(call(56, flag | 17, 0, 0, 0, 0))
for name, kind in {"block": 0o60000, "char": 0o20000}.items():
    answers[f"mknod {name}"] = told(call(133, b"/tmp/never", kind | 0o600, 0x103))
    answers[f"mknodat {name}"] = told(call(259, -100, b"/tmp/never", kind | 0o600, 0x103))
for name, request in {"TIOCSTI": 0x5412, "TIOCSTI with high bits": (1 << 32) | 0x5412, "TIOCLINUX": 0x541C}.items():
    answers[name] = told(call(16, 0, ctypes.c_ulong(request), b"x"))
print(json.dumps(answers))
"""

ASK_ORDINARY = """
answers["thread"] = told(lambda: [t := threading.Thread(target=int), t.start(), t.join()])
answers["process"] = subprocess.run(["/bin/sh", "-c", "echo fine"], capture_output=True, text=True).stdout
answers["fork"] = str(os.waitpid(os.fork() or os._exit(7), 0)[1] >> 8)
answers["pipe"] = told(lambda: [os.close(end) for end in os.pipe()])
answers["fifo"] = told(lambda: (os.mkfifo(path := f"/tmp/fifo-{os.getpid()}"), os.unlink(path)))
print(json.dumps(answers))
"""

only_x86 = pytest.mark.skipif(platform.machine() != "x86_64", reason="the numbers of these calls are those of x86_64")


def ask(question: str) -> dict[str, str]:
    done = subprocess.run(
        [sys.executable, "-I", "-c", LOAD + question],
        input=build_filter().hex(),
        capture_output=True,
        text=True,
        check=False,
        timeout=20,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_sockets_are_of_the_unix_family_or_refused():
    answers = ask(ASK_SOCKETS)

    unix = {name for name in answers if name.startswith("1/")} | {"pair"}
    assert {answers[name] for name in unix - {"1/3"}} == {"done"}
    assert {answers[name] for name in answers.keys() - unix} == {"EPERM"}


@only_x86
def test_calls_that_lead_out_are_refused():
    answers = ask(ASK_CALLS)

    assert answers.pop("clone3") == "ENOSYS", "the C library then falls back to clone, whose flags can be seen"
    assert {name: answer for name, answer in answers.items() if answer != "EPERM"} == {}


def test_threads_processes_pipes_and_fifos_still_work():
    assert ask(ASK_ORDINARY) == {
        "thread": "done",
        "process": "fine\n",
        "fork": "7",
        "pipe": "done",
        "fifo": "done",
    }


@only_x86
def test_a_call_of_the_32_bit_kind_ends_the_process():
    done = subprocess.run(
        [sys.executable, "-I", "-c", LOAD + "call(0x40000000 | 39)()\nprint('survived')"],
        input=build_filter().hex(),
        capture_output=True,
        text=True,
        check=False,
        timeout=20,
    )

    assert "survived" not in done.stdout
