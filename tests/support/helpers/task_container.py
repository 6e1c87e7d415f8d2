"""A container in which a process of this checkout runs, for a stand-in of an engine: bubblewrap with a read-only root,
a process namespace, a filter of system calls, and root with three capabilities. Its network is this machine's."""

import errno
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pyseccomp
from kubernetes_cluster.node import add_rule

from exec_supervisor.broker.seccomp_profile import build_profile
from exec_supervisor.local.process import load_children
from exec_supervisor.supervisor.child_executor import CAPABILITIES, SUPERVISOR_UID

ROOT = Path(__file__).parents[3]
SOURCES = ("libs/common/src/everturn", "services/exec-supervisor/src/exec_supervisor", "services/executor/src/executor")
LIBRARIES = {"programs": ROOT / ".venv-sandbox", "task": Path(sys.prefix)}
HOME = "/opt/everturn"
SYSTEM = ("/usr", "/bin", "/lib", "/lib64", "/etc", sys.base_prefix)
FOLDER_BYTES = 256 << 20
LOAD_FILTER = """
import ctypes, os, struct, sys
code = ctypes.create_string_buffer(os.read(int(sys.argv[1]), 1 << 16))
program = struct.pack("HxxxxxxP", (len(code) - 1) // 8, ctypes.addressof(code))
assert ctypes.CDLL(None).prctl(22, 2, program, 0, 0) == 0
os.execv(sys.argv[2], sys.argv[2:])
"""
"""Loads the filter as a runtime does, before the container's first process."""


@dataclass(frozen=True)
class TaskContainer:
    """Starts processes in containers of their own; `errors` is a file for what they write to stderr."""

    code: Path
    errors: Path
    sockets: Path

    def start(self, command: Sequence[str], environment: Mapping[str, str]) -> "subprocess.Popen[bytes]":
        """Run `exec_supervisor` with the arguments `command`; its environment is `environment`."""
        box = ["bwrap", "--unshare-pid", "--unshare-ipc", "--as-pid-1", "--cap-add", "ALL"]
        for place in (HOME, sys.base_prefix, "/run/everturn", "/workspace/work"):
            for parent in reversed(Path(place).parents):
                box += ["--perms", "0755", "--dir", str(parent)]
        for place in SYSTEM:
            box += ["--ro-bind-try", place, place]
        box += ["--ro-bind", str(self.code), HOME, "--proc", "/proc", "--dev", "/dev"]
        for name, folder in LIBRARIES.items():
            box += ["--ro-bind", str(next(folder.glob("lib/python*/site-packages"))), f"{HOME}/{name}"]
        for place in ("/workspace/work", "/workspace/out"):
            box += ["--perms", "1777", "--size", str(FOLDER_BYTES), "--tmpfs", place]
        box += ["--bind", str(self.make_socket_folder()), "/run/everturn"]
        box += ["--remount-ro", "/", "--chdir", "/", "--clearenv"]
        for name, value in environment.items():
            box += ["--setenv", name, value]
        kept = ",".join(f"+{name.lower()}" for name in CAPABILITIES)
        rights = [f"--bounding-set=-all,{kept}", "--inh-caps=-all", "--ambient-caps=-all"]
        python, filter_fd = f"{HOME}/bin/python", open_filter()
        loading = ["setpriv", *rights, python, "-I", "-c", LOAD_FILTER, str(filter_fd)]
        try:
            with self.errors.open("ab") as errors:
                return subprocess.Popen(
                    [*box, "--", *loading, python, "-I", "-m", "exec_supervisor", *command],
                    stdin=subprocess.DEVNULL,
                    stdout=errors,
                    stderr=errors,
                    env={"PATH": os.environ["PATH"]},
                    pass_fds=(filter_fd,),
                )
        finally:
            os.close(filter_fd)

    def make_socket_folder(self) -> Path:
        """The folder of the gateway's socket, which belongs to the supervisor."""
        folder = Path(tempfile.mkdtemp(dir=self.sockets))
        os.chown(folder, SUPERVISOR_UID, SUPERVISOR_UID)
        folder.chmod(0o755)
        return folder


@contextmanager
def open_containers(folder: Path) -> Generator[TaskContainer]:
    """An image with this checkout's code, as a virtual environment that any user can read."""
    code = Path(tempfile.mkdtemp(prefix="everturn-code-"))
    try:
        packages = code / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"
        for source in SOURCES:
            shutil.copytree(ROOT / source, packages / Path(source).name, ignore=shutil.ignore_patterns("__pycache__"))
        (packages / "more.pth").write_text("".join(f"{HOME}/{name}\n" for name in LIBRARIES))
        (code / "pyvenv.cfg").write_text(f"home = {sys.base_prefix}/bin\n")
        for name in ("bin", *LIBRARIES):
            (code / name).mkdir()
        (code / "bin" / "python").symlink_to(os.path.realpath(sys.executable))
        subprocess.run(["chmod", "-R", "a+rX", str(code)], check=True)
        with tempfile.TemporaryDirectory(prefix="everturn-sockets-") as sockets:
            yield TaskContainer(code, folder / "tasks.log", Path(sockets))
    finally:
        shutil.rmtree(code)


def signal_first(process: "subprocess.Popen[bytes]", number: signal.Signals) -> None:
    """Send a signal to the first process of a container; bubblewrap is its parent."""
    if process.poll() is None:
        for pid in load_children(process.pid) or [process.pid]:
            with suppress(ProcessLookupError):
                os.kill(pid, number)


def does_first_catch(process: "subprocess.Popen[bytes]", number: signal.Signals) -> bool:
    """Whether the first process of a container has a handler for a signal."""
    for pid in load_children(process.pid):
        with suppress(OSError):
            caught = Path(f"/proc/{pid}/status").read_text().partition("SigCgt:")[2].split()[0]
            return bool(int(caught, 16) >> (number - 1) & 1)
    return False


INTERNET = (socket.AF_INET, socket.AF_INET6, socket.AF_NETLINK)
"""Families of the supervisor's sockets; name resolution uses netlink."""


def open_filter() -> int:
    """Our profile, as a container engine would load it for a supervisor with a network."""
    rules = pyseccomp.SyscallFilter(pyseccomp.ERRNO(errno.EPERM))
    for family in INTERNET:
        rules.add_rule(pyseccomp.ALLOW, "socket", pyseccomp.Arg(0, pyseccomp.EQ, family))
    for rule in build_profile()["syscalls"]:
        for name in rule["names"]:
            add_rule(rules, name, rule)
    descriptor = os.memfd_create("filter", 0)
    with open(descriptor, "wb", closefd=False) as file:
        rules.export_bpf(file)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor
