"""The bubblewrap command of one run: its namespaces, folders and environment."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from everturn.execution.messages import GATEWAY_SOCKET, OUTPUT_DIR, WORKDIR, Boot
from exec_supervisor.bubblewrap.mounts import MountPlan

SYSTEM_ROOTS: Final = ("/usr/share/zoneinfo", "/usr/share/fonts", "/etc/ld.so.cache", "/etc/alternatives")
"""Time zones and fonts, and the files by which libraries and commands are found."""

_COMMANDS: Final = """
[ awk base32 base64 basename bash bunzip2 bzip2 cat chmod cksum cmp comm cp csplit cut dash date dd df diff dirname du
echo egrep env expand expr factor false fgrep file find fmt fold gawk grep groups gunzip gzip head hexdump id install
join kill ln ls mawk md5sum mkdir mkfifo mktemp mv nice nl nohup nproc numfmt od paste pr printenv printf ps pwd
readlink realpath rev rm rmdir sed seq sh sha1sum sha256sum sha512sum shuf sleep sort split stat stdbuf sum sync tac
tail tar tee test timeout touch tr true truncate tsort tty uname unexpand uniq unlink unxz unzip uptime wc which whoami
xargs xz yes zcat zip
"""
COMMANDS: Final = tuple(_COMMANDS.split())
"""The system programs that a run can start: the shell and tools for texts, files and archives. Debuggers, clients of
networks and container engines, compilers and package managers are not included."""

UID_INSIDE: Final = 1001
"""User and group that the program sees, whatever they are outside."""

_MASKED_FILES: Final = """
buddyinfo cmdline config.gz consoles crypto devices diskstats dma execdomains fb interrupts iomem ioports kallsyms kcore
key-users keys kmsg kpagecgroup kpagecount kpageflags latency_stats locks mdstat misc modules mtrr pagetypeinfo
partitions sched_debug schedstat slabinfo softirqs swaps sysrq-trigger timer_list timer_stats vmallocinfo vmstat
zoneinfo
"""
_MASKED_FOLDERS: Final = "acpi asound bus driver dynamic_debug fs irq pressure scsi sysvipc tty xen"

_DEVICES: Final = ("/dev/null", "/dev/zero", "/dev/random", "/dev/urandom", "/dev/full")
_LEGACY: Final = ("/bin", "/lib", "/lib32", "/lib64")


@dataclass(frozen=True, slots=True)
class Masked:
    """The parts of /proc that a program sees empty: all that reveals the machine and that ordinary programs don't
    read."""

    files: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()


def load_masked() -> Masked:
    """The masked paths that exist in this kernel."""
    return Masked(
        tuple(path for name in _MASKED_FILES.split() if os.path.isfile(path := f"/proc/{name}")),
        tuple(path for name in _MASKED_FOLDERS.split() if os.path.isdir(path := f"/proc/{name}")),
    )


def load_system_roots(root: Path = Path("/")) -> tuple[str, ...]:
    """Libraries, commands and data of the system, as far as this machine has them.

    Without a merged /usr this includes those of the old top-level folders. `root` is the system's root.
    """
    found = [path for path in SYSTEM_ROOTS if (root / path[1:]).exists()]
    for top in (root / "usr", root):
        found += (f"/{path.relative_to(root)}" for path in _find_libraries(top))
        if not (top / "bin").is_symlink():
            found += (
                f"/{(top / 'bin' / name).relative_to(root)}" for name in COMMANDS if (top / "bin" / name).is_file()
            )
    return tuple(found)


def _find_libraries(top: Path) -> list[Path]:
    """The folders of shared libraries below /usr or /. If they have one per architecture, only those and a few names.

    The others contain parts of other programs and system-wide Python packages.
    """
    library = top / "lib"
    if library.is_dir() and not library.is_symlink():
        by_architecture = sorted(library.glob("*-linux-*"))
        beside = [library / name for name in ("locale", "os-release")]
        libraries = [*by_architecture, *beside] if by_architecture else [library]
    else:
        libraries = []
    others = [top / name for name in ("lib32", "lib64") if not (top / name).is_symlink()]
    return [path for path in (*libraries, *others) if path.exists()]


def load_system_links() -> tuple[tuple[str, str], ...]:
    """The top-level links of a merged /usr as pairs of target and path."""
    return tuple((str(Path(path).readlink()), path) for path in _LEGACY if Path(path).is_symlink())


def build_command(
    boot: Boot, plan: MountPlan, links: tuple[tuple[str, str], ...], seccomp_fd: int, masked: Masked = Masked()
) -> list[str]:
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
    command += ["--seccomp", str(seccomp_fd), *_proc(masked)]
    for device in _DEVICES:
        command += ["--dev-bind", device, device]
    for target, place in (*links, ("/proc/self/fd", "/dev/fd")):
        command += ["--symlink", target, place]
    for bind in plan.read_only:
        command += ["--ro-bind", bind.source, bind.target]
    for folder in boot.interpreter.hidden:
        command += _empty_folder(folder)
    command += ["--ro-bind", plan.socket_dir, str(Path(GATEWAY_SOCKET).parent)]
    command += _workspace(plan.work, WORKDIR, boot.limits.work_dir_bytes)
    command += _workspace(plan.out, OUTPUT_DIR, boot.limits.out_dir_bytes)
    command += ["--remount-ro", "/", "--chdir", WORKDIR]
    command += ["--", boot.interpreter.python, "-I", "-B", "-X", "utf8", "-m", "executor"]
    return [*command, "--preload", ",".join(boot.preload)] if boot.preload else command


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
