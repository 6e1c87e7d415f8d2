"""The mode `bubblewrap`: a supervisor whose run is isolated by bubblewrap, in namespaces of this machine."""

from pathlib import Path
from typing import Final

from everturn.execution.messages import GATEWAY_SOCKET, OUTPUT_DIR, WORKDIR, Boot
from exec_supervisor.local.folders import Masked, MountPlan
from exec_supervisor.local.sandbox import Isolation, build_executor_command, run_local
from exec_supervisor.local.seccomp import describe_filter

UID_INSIDE: Final = 1001
"""User and group that the program sees, whatever they are outside."""
_DEVICES: Final = ("/dev/null", "/dev/zero", "/dev/random", "/dev/urandom", "/dev/full")


def main() -> int:
    """Return the exit code of the supervisor."""
    return run_local(
        Isolation(
            "bubblewrap",
            build_command,
            processes=2,
            network="none (a network namespace of its own)",
            seccomp=describe_filter(),
        )
    )


def build_command(boot: Boot, plan: MountPlan, seccomp_fd: int) -> list[str]:
    """Build the argument list. Bubblewrap's own environment must be empty: the program can read it in `/proc/1`."""
    uid = str(UID_INSIDE)
    command = [
        boot.executable,
        "--unshare-all",
        "--unshare-user",
        "--disable-userns",
        "--die-with-parent",
        "--new-session",
        # The runner is pid 1, which signals from inside can't reach, as in a container.
        "--as-pid-1",
    ]
    command += ["--clearenv", "--cap-drop", "ALL", "--uid", uid, "--gid", uid, "--hostname", "sandbox"]
    command += ["--seccomp", str(seccomp_fd), *_proc(plan.masked)]
    for device in _DEVICES:
        command += ["--dev-bind", device, device]
    for target, place in (*plan.links, ("/proc/self/fd", "/dev/fd")):
        command += ["--symlink", target, place]
    for bind in plan.read_only:
        command += ["--ro-bind", bind.source, bind.target]
    for folder in boot.interpreter.hidden:
        command += _empty_folder(folder)
    command += ["--ro-bind", plan.socket_dir, str(Path(GATEWAY_SOCKET).parent)]
    command += _workspace(plan.work, WORKDIR, boot.limits.work_dir_bytes)
    command += _workspace(plan.out, OUTPUT_DIR, boot.limits.out_dir_bytes)
    command += ["--remount-ro", "/", "--chdir", WORKDIR]
    return [*command, "--", *build_executor_command(boot)]


def _proc(masked: Masked) -> list[str]:
    """Read-only: otherwise a program could change its OOM score, the order in which processes are killed."""
    command = ["--proc", "/proc"]
    for path in masked.files:
        command += ["--ro-bind", "/dev/null", path]
    for path in masked.folders:
        command += _empty_folder(path)
    return [*command, "--remount-ro", "/proc"]


def _empty_folder(path: str) -> list[str]:
    return ["--perms", "0555", "--size", "4096", "--tmpfs", path, "--remount-ro", path]


def _workspace(staged: str | None, target: str, size_bytes: int) -> list[str]:
    if staged is not None:
        return ["--bind", staged, target]
    return ["--perms", "0700", "--size", str(size_bytes), "--tmpfs", target]
