"""What an author's code reaches beyond its own files and the network, if the worker is root and if it is not."""

import asyncio
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from chat_proc.bundles.host import watchdog as watchdogs
from chat_proc.bundles.host.processes import ProcessLimits, WatchedProcess
from chat_proc.bundles.host.section import MIB

pytestmark = pytest.mark.sandbox

ROOT = Path(__file__).parents[4]
BASE_PYTHON = Path(sys.base_prefix).resolve()
WORKER_UID = 23_600
WATCHDOG, ASKED = Path(watchdogs.__file__).read_text(), "    if version < 1:\n"
assert WATCHDOG.count(ASKED) == 1
ATTACKS = r'''
import ctypes, fcntl, json, os, resource, signal, socket, subprocess, stat, struct, sys, tempfile, threading
from contextlib import suppress
from everturn_sdk import tool

libc = ctypes.CDLL(None, use_errno=True)

def check(result):
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result

def connect(address, kind=socket.SOCK_STREAM):
    with socket.socket(socket.AF_UNIX, kind) as line:
        line.connect(address)

def connect_pair(address):
    """A datagram socket of a pair can be connected again."""
    one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    one.connect(address)

def read(path):
    with open(path, "rb") as file:
        return file.read(64)

def write(path):
    with open(path, "ab") as file:
        file.write(b"x")

def trace(pid):
    check(libc.ptrace(16, pid, None, None))

def read_memory(pid):
    class Vector(ctypes.Structure):
        _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]
    for line in open(f"/proc/{pid}/maps"):
        mine = ctypes.create_string_buffer(64)
        theirs = Vector(int(line.split("-")[0], 16), 64)
        ours = Vector(ctypes.addressof(mine), 64)
        check(libc.process_vm_readv(pid, ctypes.byref(ours), 1, ctypes.byref(theirs), 1, 0))
        return

def call_kernel(number, *arguments):
    check(libc.syscall(number, *(ctypes.c_long(each) for each in arguments)))

def list_descriptors():
    """Those beyond input and output."""
    for number in {*os.listdir("/proc/self/fd")} - {"0", "1", "2"}:
        try:
            yield os.readlink(f"/proc/self/fd/{number}")
        except FileNotFoundError:
            continue  # that of the list

def own_file(pid):
    """The process gets signals about a file."""
    with socket.socket() as file:
        fcntl.fcntl(file, fcntl.F_SETOWN, pid)

def own_socket(pid):
    with socket.socket() as file:
        fcntl.ioctl(file, 0x8901, struct.pack("i", pid))

def signal_all():
    try:
        os.kill(-1, 0)
    except PermissionError:
        return False
    return True

def start_threads(count):
    """How many of so many threads can run at once."""
    end = threading.Event()
    started = 0
    try:
        for started in range(1, count + 1):
            threading.Thread(target=end.wait).start()
    except RuntimeError:
        started -= 1
    end.set()
    return started

@tool(effect="pure")
def attack(socket_path: str, worker: int, watchdog: int, other: str, secret: str, environments: str) -> dict:
    """Tries everything."""
    shared = os.uname().machine == "x86_64"
    ring = ctypes.create_string_buffer(200)
    attributes = ctypes.create_string_buffer(struct.pack("=IIQiIQQQ", 48, 5, 0, 0, 0, 0, 0, 0))
    attacks = {
        "socket": lambda: connect(socket_path),
        "socket by a datagram": lambda: connect(socket_path + ".dgram", socket.SOCK_DGRAM),
        "socket by a pair": lambda: connect_pair(socket_path + ".dgram"),
        "abstract socket": lambda: connect("\0" + socket_path),
        "engine": lambda: connect("/var/run/docker.sock"),
        "virtual machine": lambda: socket.socket(socket.AF_VSOCK, socket.SOCK_STREAM),
        "io_uring": lambda: call_kernel(425, 8, ctypes.addressof(ring)),
        "shared memory": lambda: call_kernel(29 if shared else 194, 4711, 4096, 0o1666),
        "queue": lambda: call_kernel(68 if shared else 186, 4711, 0o1666),
        "environment": lambda: read(f"/proc/{worker}/environ"),
        "memory": lambda: read(f"/proc/{worker}/mem"),
        "descriptors": lambda: os.readlink(f"/proc/{worker}/fd/0"),
        "root": lambda: os.listdir(f"/proc/{worker}/root/"),
        "watchdog": lambda: read(f"/proc/{watchdog}/environ"),
        "trace": lambda: trace(worker),
        "trace watchdog": lambda: trace(watchdog),
        "vm": lambda: read_memory(worker),
        "signal": lambda: os.kill(worker, 0),
        "signal watchdog": lambda: os.kill(watchdog, 0),
        "owner of a file": lambda: own_file(worker),
        "owner of a socket": lambda: own_socket(worker),
        "signal group of worker": lambda: os.killpg(os.getpgid(worker), 0),
        "signal thread": lambda: call_kernel(234 if shared else 131, worker, worker, 0),
        "queue signal": lambda: call_kernel(129 if shared else 138, worker, 10, ctypes.addressof(ring)),
        "signal by a file": lambda: signal.pidfd_send_signal(os.pidfd_open(worker), 0),
        "descriptor of worker": lambda: call_kernel(438, os.pidfd_open(worker), 0, 0),
        "other bundle": lambda: os.listdir(other),
        "code of other bundle": lambda: read(other + "/code/other/tools.py"),
        "home of other bundle": lambda: read(other + "/home/note"),
        "temporary files": lambda: os.listdir("/tmp"),
        "secret": lambda: read(secret),
        "environments": lambda: os.listdir(environments),
        "own environment": lambda: write(sys.prefix + "/pyvenv.cfg"),
        "sdk": lambda: write(sys.modules["everturn_sdk"].__file__),
        "mount": lambda: check(libc.mount(b"none", os.environ["HOME"].encode(), b"tmpfs", 0, None)),
        "user": lambda: os.setuid(0),
        "groups": lambda: os.setgroups([0]),
        "priority": lambda: os.nice(-5),
        "limits": lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (9999, 9999)),
        "write proc": lambda: write("/proc/self/oom_score_adj"),
        "limits of worker": lambda: resource.prlimit(worker, resource.RLIMIT_NOFILE, (32, 32)),
        "limits of watchdog": lambda: resource.prlimit(watchdog, resource.RLIMIT_CPU, (1, 1)),
        "processor of worker": lambda: os.sched_setaffinity(worker, {0}),
        "scheduler of worker": lambda: os.sched_setscheduler(worker, os.SCHED_IDLE, os.sched_param(0)),
        "parameter of worker": lambda: os.sched_setparam(worker, os.sched_param(0)),
        "attributes of worker": lambda: call_kernel(314 if shared else 274, worker, ctypes.addressof(attributes), 0),
        "priority of worker": lambda: os.setpriority(os.PRIO_PROCESS, worker, 19),
        "priority of group": lambda: os.setpriority(os.PRIO_PGRP, 0, 19),
        "priority of user": lambda: os.setpriority(os.PRIO_USER, 0, 19),
        "disk of worker": lambda: call_kernel(251 if shared else 30, 1, worker, 3 << 13),
        "disk of user": lambda: call_kernel(251 if shared else 30, 3, 0, 3 << 13),
    }
    reached = []
    for name, attack in attacks.items():
        try:
            attack()
        except (OSError, ValueError):
            continue
        reached.append(name)
    shares_memory = False
    # Its own process stays its own.
    resource.setrlimit(resource.RLIMIT_NOFILE, resource.getrlimit(resource.RLIMIT_NOFILE))
    os.sched_setaffinity(0, os.sched_getaffinity(0))
    os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
    call_kernel(314 if shared else 274, 0, ctypes.addressof(attributes), 0)
    call_kernel(251 if shared else 30, 1, 0, 3 << 13)
    os.nice(1)
    for ends in ({}, {"start_new_session": True}):
        child = subprocess.Popen(["/bin/sleep", "60"], **ends)
        os.killpg(child.pid, signal.SIGTERM) if ends else child.kill()
        child.wait()
    signal.raise_signal(signal.SIGCHLD)
    with suppress(OSError), tempfile.NamedTemporaryFile(dir="/dev/shm"):
        shares_memory = True
    return {
        "reached": reached,
        "shares_memory": shares_memory,
        "signals_all": signal_all(),
        "threads": start_threads(40),
        "groups": os.getgroups(),
        "uid": os.getuid(),
        "open": sorted(name.split(":")[0] for name in list_descriptors()),
        "no_new_privs": libc.prctl(39, 0, 0, 0, 0),
        "oom": open("/proc/self/oom_score_adj").read().strip(),
    }

@tool(effect="pure")
def where() -> list:
    """Its home, its watchdog, and its worker."""
    with open(os.environ["HOME"] + "/note", "w") as file:
        file.write("private")
    watchdog = os.getppid()
    with open(f"/proc/{watchdog}/stat") as file:
        return [os.environ["HOME"], watchdog, int(file.read().rpartition(")")[2].split()[1])]
'''

OTHERS = f"""
import os, threading
os.setuid({WORKER_UID})
end = threading.Event()
for _ in range(300):
    threading.Thread(target=end.wait).start()
print("ready", flush=True)
input()
end.set()
"""
CONTAINED = f"""
import asyncio, json, sys
from pathlib import Path
sys.path.insert(0, {str(Path(__file__).parent)!r})
from test_isolation import run_worker
print(json.dumps(asyncio.run(run_worker(Path(sys.argv[1]), as_root=False))))
"""
WORKER = """
import asyncio, json, os, socket, sys, uvloop
from pathlib import Path
from chat_proc.bundles.host.environments import Environments
from chat_proc.bundles.host import processes
from chat_proc.bundles.host.host import open_bundle_host
from chat_proc.bundles.host.host_process import BundleCode, HostOptions
from everturn_sdk.protocol import CallContext

attacks, base, uids = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
processes._WATCHDOG = sys.argv[4]
files = {"tools_descriptor.py": b'TOOLS_SPECS = [{"ref": "tools.py", "alias": "t"}]', "tools.py": attacks.read_bytes()}

def open_socket(kind, address):
    opened = socket.socket(socket.AF_UNIX, kind)
    opened.bind(address)
    if kind == socket.SOCK_STREAM:
        opened.listen()
    if address[0] == "/":
        os.chmod(address, 0o666)
    return opened

async def call(host, name, **arguments):
    context = CallContext(call_id="c", tenant="t", project="p", user_id="u", roles=(), conversation_id="c",
                          turn_id="t", round=1, now="")
    ended, content = await host.call(f"t.{name}", "t", arguments, context, None, is_repeatable=False)
    return json.loads(content) if ended.status == "ok" else ended.error

async def main():
    base.chmod(0o711)
    path, secret = str(base / "broker"), base / "secret"
    secret.write_text("of the platform")
    secret.chmod(0o644)
    kinds = [(socket.SOCK_STREAM, path), (socket.SOCK_STREAM, chr(0) + path), (socket.SOCK_DGRAM, path + ".dgram")]
    opened = [open_socket(*each) for each in kinds]
    options = HostOptions(Environments(base / "environments"), uids=range(uids, uids + 500 * bool(uids)), folder=base)
    async with (
        open_bundle_host(BundleCode("other", "1" * 64, files), options) as other,
        open_bundle_host(BundleCode("desk", "2" * 64, files), options) as desk,
    ):
        home = (await call(other, "where"))[0]
        _, watchdog, _ = await call(desk, "where")
        print(json.dumps(await call(
            desk, "attack", socket_path=path, worker=os.getpid(), watchdog=watchdog, secret=str(secret),
            other=home.removesuffix("/home"), environments=str(base / "environments"),
        )), flush=True)

# As workers do.
uvloop.run(main())
"""


async def run_worker(folder: Path, *, as_root: bool, landlock: int = 99) -> dict[str, Any]:
    """What the attacks of a bundle report that a worker of its own runs, on a kernel with no newer Landlock."""
    base, attacks, watchdog = folder / "base", folder / "attacks.py", folder / "watchdog.py"
    base.mkdir()
    attacks.write_text(ATTACKS)
    watchdog.write_text(WATCHDOG.replace(ASKED, f"    version = min(version, {landlock})\n{ASKED}"))
    uid = None if as_root or os.geteuid() != 0 else WORKER_UID
    if uid is not None:
        os.chown(base, uid, uid)
    lines: list[str] = []
    command = [sys.executable, "-c", WORKER, str(attacks), str(base), str(23_000 if as_root else 0), str(watchdog)]
    async with WatchedProcess(
        command,
        folder=base,
        environment={"PATH": os.environ["PATH"]},
        limits=ProcessLimits(memory_bytes=4096 * MIB, processes=1000, uid=uid),
        on_line=lines.append,
        shown=(ROOT, BASE_PYTHON, folder),
    ) as worker:
        assert await worker.wait(60)
    return json.loads(lines[-1])


@pytest.mark.parametrize("flood", [5_000, 0])
@pytest.mark.parametrize("end", ["\n", ""])
async def test_the_last_lines_of_a_flood_are_passed_on(tmp_path: Path, flood: int, end: str) -> None:
    code = f"for n in range({flood}): print('line', n)\nprint('Traceback'); print('a reason', end={end!r})"
    lines: list[str] = []
    async with WatchedProcess(
        [sys.executable, "-c", code],
        folder=tmp_path,
        environment={"PATH": os.environ["PATH"]},
        limits=ProcessLimits(),
        on_line=lines.append,
    ) as process:
        assert await process.wait(60)

    assert lines[-2:] == ["Traceback", "a reason"]
    counted = sum(int(line[1:].split()[0]) for line in lines if "were left out" in line)
    shown = [line for line in lines if "were left out" not in line]
    assert counted + len(shown) == flood + 2


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """Pytest's own folder stays closed to other users."""
    with tempfile.TemporaryDirectory(prefix="everturn-isolation-", ignore_cleanup_errors=True) as folder:
        Path(folder).chmod(0o711)
        yield Path(folder)


@pytest.mark.parametrize("as_root", [True, False])
async def test_code_of_a_bundle_reaches_nothing_of_the_platform(open_folder: Path, as_root: bool):
    if as_root and os.geteuid() != 0:
        pytest.skip("this is no worker of root")

    found = await run_worker(open_folder, as_root=as_root)

    assert found["reached"] == []
    memory = os.statvfs("/dev/shm")
    assert found["shares_memory"] == (as_root or memory.f_blocks * memory.f_frsize <= 64 * MIB)
    assert found["groups"] == []
    assert (found["no_new_privs"], found["oom"]) == (1, "1000")
    assert found["open"].count("socket") == 3, "its own connection, and the pair of its event loop"
    assert set(found["open"]) == {"anon_inode", "socket"}


async def test_an_older_kernel_passes_no_signals_to_what_started_before(open_folder: Path):
    found = await run_worker(open_folder, as_root=False, landlock=5)

    assert (found["reached"], found["signals_all"]) == ([], False)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has other users")
async def test_services_in_other_containers_leave_a_bundle_its_threads(open_folder: Path):
    others = await asyncio.create_subprocess_exec(
        sys.executable, "-c", OTHERS, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        async with asyncio.timeout(60):
            assert await others.stdout.readline() == b"ready\n"
            # /proc of this worker does not list them, but the kernel counts them for its user.
            worker = await asyncio.create_subprocess_exec(
                *("unshare", "-pf", "--mount-proc", "--kill-child"),
                *(sys.executable, "-c", CONTAINED, str(open_folder)),
                stdout=subprocess.PIPE,
            )
            out, _ = await worker.communicate()
    finally:
        await others.communicate(b"\n")

    assert json.loads(out)["threads"] == 40
