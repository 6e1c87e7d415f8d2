"""What the kernel answers: run as a script, with the name of a question and, on stdin, a filter to load first.

The filter is a BPF program in hexadecimal; without one the answers are those of whatever holds this process already.
Prints a JSON object of answers: "done", or the name of an error.
"""

import ctypes
import errno
import json
import os
import socket
import struct
import subprocess
import sys
import threading
from functools import partial

libc = ctypes.CDLL(None, use_errno=True)


def load(program):
    class Filter(ctypes.Structure):
        _fields_ = [("length", ctypes.c_ushort), ("code", ctypes.c_char_p)]

    instructions = Filter(len(program) // 8, program)
    assert libc.prctl(38, 1, 0, 0, 0) == 0
    assert libc.prctl(22, 2, ctypes.byref(instructions), 0, 0) == 0, os.strerror(ctypes.get_errno())


def attempt(action):
    try:
        action()
    except OSError as error:
        return errno.errorcode[error.errno]
    return "done"


def invoke(function, *arguments):
    def action():
        if function(*arguments) == -1:
            raise OSError(ctypes.get_errno(), "")

    return action


def call(number, *arguments):
    return invoke(libc.syscall, number, *arguments)


def open_and_close(family, kind):
    socket.socket(family, kind).close()


def ask_sockets(answers):
    for family in range(0, 46):
        for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_RAW):
            answers[f"{int(family)}/{int(kind)}"] = attempt(partial(open_and_close, family, kind))
    answers["pair"] = attempt(lambda: [end.close() for end in socket.socketpair()])


def ask_options(answers):
    """Options of a TCP socket; those of filters get a program of one instruction, which accepts everything."""
    usual = {"reuse": 2, "send buffer": 7, "receive buffer": 8, "keep-alive": 9, "low water": 18, "incoming CPU": 49}
    filters = {"filter": 26, "bpf": 50, "group filter": 51, "group bpf": 52, "later": 90}
    wide = {"level with high bits": (1 << 32 | 1, 26), "option with high bits": (1, 1 << 32 | 26)}
    code = ctypes.create_string_buffer(bytes.fromhex("06000000ffff0000"))
    program = struct.pack("@HP", 1, ctypes.addressof(code))
    with socket.socket() as one:
        for name, option in usual.items():
            answers[name] = attempt(partial(one.setsockopt, socket.SOL_SOCKET, option, 1))
        answers["no delay"] = attempt(partial(one.setsockopt, socket.IPPROTO_TCP, socket.TCP_NODELAY, 1))
        answers["other protocol"] = attempt(partial(one.setsockopt, socket.IPPROTO_TCP, 31, b"tls"))
        for name, option in filters.items():
            answers[name] = attempt(partial(one.setsockopt, socket.SOL_SOCKET, option, program))
        for name, (level, option) in wide.items():
            numbers = map(ctypes.c_ulong, (one.fileno(), level, option))
            answers[name] = attempt(invoke(libc.setsockopt, *numbers, program, len(program)))


def ask_calls(answers):
    numbers = {
        "ptrace": 101,
        "unshare": 272,
        "mount": 165,
        "umount2": 166,
        "chroot": 161,
        "pivot_root": 155,
        "setns": 308,
        "keyctl": 250,
        "add_key": 248,
        "request_key": 249,
        "bpf": 321,
        "perf_event_open": 298,
        "userfaultfd": 323,
        "process_vm_readv": 310,
        "process_vm_writev": 311,
        "io_uring_setup": 425,
        "io_uring_enter": 426,
        "io_uring_register": 427,
        "open_tree": 428,
        "move_mount": 429,
        "fsopen": 430,
        "pidfd_getfd": 438,
        "mount_setattr": 442,
        "memfd_create": 319,
        "memfd_secret": 447,
        "shmget": 29,
        "msgget": 68,
        "semget": 64,
        "init_module": 175,
        "kexec_load": 246,
        "reboot": 169,
        "open_by_handle_at": 304,
        "personality": 135,
        "clone3": 435,
    }
    for name, number in numbers.items():
        answers[name] = attempt(call(number, 0, 0, 0, 0, 0))
    for name, flag in {"user": 0x10000000, "net": 0x40000000, "mount": 0x20000, "pid": 0x20000000}.items():
        answers[f"clone new {name}"] = attempt(call(56, flag | 17, 0, 0, 0, 0))
    for name, kind in {"block": 0o60000, "char": 0o20000}.items():
        answers[f"mknod {name}"] = attempt(call(133, b"/tmp/never", kind | 0o600, 0x103))
        answers[f"mknodat {name}"] = attempt(call(259, -100, b"/tmp/never", kind | 0o600, 0x103))
    for name, request in {"TIOCSTI": 0x5412, "TIOCSTI with high bits": (1 << 32) | 0x5412, "TIOCLINUX": 0x541C}.items():
        answers[name] = attempt(call(16, 0, ctypes.c_ulong(request), b"x"))


def ask_ordinary(answers):
    answers["thread"] = attempt(lambda: [t := threading.Thread(target=int), t.start(), t.join()])
    answers["process"] = subprocess.check_output(["/bin/sh", "-c", "echo fine"], text=True)
    answers["fork"] = str(os.waitpid(os.fork() or os._exit(7), 0)[1] >> 8)
    answers["pipe"] = attempt(lambda: [os.close(end) for end in os.pipe()])
    answers["fifo"] = attempt(lambda: (os.mkfifo(path := f"/tmp/fifo-{os.getpid()}"), os.unlink(path)))


def ask_32_bit(answers):
    call(0x40000000 | 39)()
    answers["32 bit"] = "survived"


if __name__ == "__main__":
    found = {}
    if text := sys.stdin.read():
        load(bytes.fromhex(text))
    asked = {"sockets": ask_sockets, "options": ask_options, "calls": ask_calls, "ordinary": ask_ordinary}
    {**asked, "32 bit": ask_32_bit}[sys.argv[1]](found)
    json.dump(found, sys.stdout)
