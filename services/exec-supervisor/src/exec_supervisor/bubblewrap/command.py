"""The bubblewrap command of one run: which namespaces, which folders, which environment."""

from pathlib import Path
from typing import Final

from everturn.wire.execution import GATEWAY_SOCKET, OUTPUT_DIR, WORKDIR, Boot
from exec_supervisor.bubblewrap.mounts import Stage

SYSTEM_ROOTS: Final = (
    "/usr/bin",
    "/usr/lib",
    "/usr/lib32",
    "/usr/lib64",
    "/usr/share/zoneinfo",
    "/usr/share/fonts",
    "/etc/ld.so.cache",
    "/etc/alternatives",
)
"""Libraries, the shell's commands, time zones and fonts; no other part of /usr, where a checkout might lie."""

_DEVICES: Final = ("/dev/null", "/dev/zero", "/dev/random", "/dev/urandom", "/dev/full")
_LEGACY: Final = ("/bin", "/lib", "/lib32", "/lib64")


def load_system_roots() -> tuple[str, ...]:
    """Those of the system's folders that this machine has; on one without a merged /usr also the old top-level ones."""
    legacy = [path for path in _LEGACY if Path(path).is_dir() and not Path(path).is_symlink()]
    return tuple(path for path in (*SYSTEM_ROOTS, *legacy) if Path(path).exists())


def load_system_links() -> tuple[tuple[str, str], ...]:
    """The top-level links of a merged /usr as pairs of target and place."""
    return tuple((str(Path(path).readlink()), path) for path in _LEGACY if Path(path).is_symlink())


def build_command(boot: Boot, stage: Stage, links: tuple[tuple[str, str], ...], seccomp_fd: int) -> list[str]:
    """The argument list. Bubblewrap's own environment must be empty: the program can read it in `/proc/1`."""
    uid = str(boot.sandbox_uid)
    command = [
        boot.bwrap,
        "--unshare-all",
        "--unshare-user",
        "--disable-userns",
        "--die-with-parent",
        "--new-session",
        # The runner is what signals from inside can't reach, as in a container.
        "--as-pid-1",
    ]
    command += ["--clearenv", "--cap-drop", "ALL", "--uid", uid, "--gid", uid, "--hostname", "sandbox"]
    command += ["--seccomp", str(seccomp_fd), "--proc", "/proc"]
    for device in _DEVICES:
        command += ["--dev-bind", device, device]
    for target, place in (*links, ("/proc/self/fd", "/dev/fd")):
        command += ["--symlink", target, place]
    for bind in stage.read_only:
        command += ["--ro-bind", bind.source, bind.target]
    command += ["--ro-bind", stage.socket_dir, str(Path(GATEWAY_SOCKET).parent)]
    command += _workspace(stage.work, WORKDIR, boot.limits.work_dir_bytes)
    command += _workspace(stage.out, OUTPUT_DIR, boot.limits.out_dir_bytes)
    command += ["--remount-ro", "/", "--chdir", WORKDIR]
    command += ["--", boot.interpreter.python, "-I", "-B", "-X", "utf8", "-m", "executor"]
    return [*command, "--preload", ",".join(boot.preload)] if boot.preload else command


def _workspace(staged: str | None, target: str, size_bytes: int) -> list[str]:
    if staged is not None:
        return ["--bind", staged, target]
    return ["--perms", "0700", "--size", str(size_bytes), "--tmpfs", target]
