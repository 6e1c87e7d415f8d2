"""What a run sees of this machine: folders of the system, its workspace, and the parts of /proc that are masked.

A launcher runs as an ordinary user and can't bind paths under a folder such as a 0700 home. A supervisor that is root
therefore creates a mount namespace and binds each folder under the run's; nothing of it is visible outside, and the
kernel removes it with the last process in it.
"""

import contextlib
import ctypes
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from everturn.execution.messages import GATEWAY_SOCKET, NETWORK_SOCKET, RunLimits

_CLONE_NEWNS: Final = 0x00020000
_MS_RDONLY, _MS_NOSUID, _MS_NODEV, _MS_NOEXEC, _MS_REMOUNT = 1, 2, 4, 8, 32
_MS_BIND, _MS_REC, _MS_PRIVATE = 4096, 16384, 1 << 18
_MNT_DETACH: Final = 2

SYSTEM_ROOTS: Final = ("/usr/share/zoneinfo", "/usr/share/fonts", "/etc/ld.so.cache", "/etc/alternatives")
"""Time zones and fonts, and the files by which libraries and commands are found."""
NETWORK_ROOTS: Final = ("/etc/ssl/certs", "/etc/pki/ca-trust/extracted", "/usr/share/ca-certificates")
"""The certificates of authorities, which a program with a network needs for TLS."""

_COMMANDS: Final = """
[ awk base32 base64 basename bash bunzip2 bzip2 cat chmod cksum cmp comm cp csplit cut dash date dd df diff dirname du
echo egrep env expand expr factor false fgrep file find fmt fold gawk grep groups gunzip gzip head hexdump id install
join kill ln ls mawk md5sum mkdir mkfifo mktemp mv nice nl nohup nproc numfmt od paste pr printenv printf ps pwd
readlink realpath rev rm rmdir sed seq sh sha1sum sha256sum sha512sum shuf sleep sort split stat stdbuf sum sync tac
tail tar tee test timeout touch tr true truncate tsort tty uname unexpand uniq unlink unxz unzip uptime wc which whoami
xargs xz yes zcat zip
"""
NETWORK_COMMANDS: Final = ("curl",)

COMMANDS: Final = tuple(_COMMANDS.split())
"""The system programs that a run can start: the shell and tools for texts, files and archives. Debuggers, clients of
networks and container engines, compilers and package managers are not included."""

_MASKED_FILES: Final = """
buddyinfo cmdline config.gz consoles crypto devices diskstats dma execdomains fb interrupts iomem ioports kallsyms kcore
key-users keys kmsg kpagecgroup kpagecount kpageflags latency_stats locks mdstat misc modules mtrr pagetypeinfo
partitions sched_debug schedstat slabinfo softirqs swaps sysrq-trigger timer_list timer_stats vmallocinfo vmstat
zoneinfo
"""
_MASKED_FOLDERS: Final = "acpi asound bus driver dynamic_debug fs irq pressure scsi sysvipc tty xen"

_LEGACY: Final = ("/bin", "/lib", "/lib32", "/lib64")

_SOCKET_DIR: Final = "gateway"
SOCKET_NAME: Final = Path(GATEWAY_SOCKET).name
NETWORK_SOCKET_NAME: Final = Path(NETWORK_SOCKET).name


@dataclass(frozen=True, slots=True)
class Bind:
    """A folder or file at `source` on this machine, visible at `target` in the sandbox."""

    source: str
    target: str


@dataclass(frozen=True, slots=True)
class Masked:
    """The parts of /proc that a program sees empty: all that reveals the machine and that ordinary programs don't
    read."""

    files: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class MountPlan:
    """What a run sees. `links` are pairs of target and path.

    Without `work` and `out` the launcher creates these two, with a size limit but no inode limit.
    """

    read_only: tuple[Bind, ...]
    socket_dir: str
    work: str | None = None
    out: str | None = None
    links: tuple[tuple[str, str], ...] = ()
    masked: Masked = Masked()


def load_masked() -> Masked:
    """The masked paths that exist in this kernel."""
    return Masked(
        tuple(path for name in _MASKED_FILES.split() if os.path.isfile(path := f"/proc/{name}")),
        tuple(path for name in _MASKED_FOLDERS.split() if os.path.isdir(path := f"/proc/{name}")),
    )


def load_system_roots(root: Path = Path("/"), *, network: bool = False) -> tuple[str, ...]:
    """Libraries, commands and data of the system, as far as this machine has them; for a `network` some more.

    Without a merged /usr this includes those of the old top-level folders. `root` is the system's root.
    """
    commands = (*COMMANDS, *NETWORK_COMMANDS) if network else COMMANDS
    wanted = (*SYSTEM_ROOTS, *NETWORK_ROOTS) if network else SYSTEM_ROOTS
    found = [path for path in wanted if (root / path[1:]).exists()]
    for top in (root / "usr", root):
        found += (f"/{path.relative_to(root)}" for path in _find_libraries(top))
        if not (top / "bin").is_symlink():
            found += (
                f"/{(top / 'bin' / name).relative_to(root)}" for name in commands if (top / "bin" / name).is_file()
            )
    return tuple(found)


def _find_libraries(top: Path) -> list[Path]:
    """The folders of shared libraries under /usr or /. If they have one per architecture, only those and a few names.

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


def make_run_dir(run_dir: Path) -> None:
    """Create the run's folder, which must not exist yet. Raises OSError."""
    run_dir.mkdir()
    os.chmod(run_dir, 0o711)  # noqa: S103 - the dropped user passes through, it can't list


def build_mount_plan(run_dir: Path, roots: tuple[str, ...], limits: RunLimits, uid: int) -> MountPlan:
    """Fill `run_dir`: staged binds and tmpfs folders if this process can mount, otherwise the roots themselves."""
    links, masked = load_system_links(), load_masked()
    if os.geteuid() != 0 or not _try_own_namespace():
        whole = tuple(Bind(root, root) for root in roots)
        return MountPlan(whole, _make_socket_dir(run_dir), links=links, masked=masked)
    descriptors = [(root, os.open(root, os.O_PATH | os.O_CLOEXEC)) for root in roots]
    _mount("tmpfs", run_dir, "tmpfs", _MS_NOSUID | _MS_NODEV, "mode=0711,size=1m,nr_inodes=2000")
    binds: list[Bind] = []
    for number, (root, descriptor) in enumerate(descriptors):
        place = run_dir / f"root{number}"
        place.mkdir() if os.path.isdir(root) else place.touch()
        # By descriptor: the run's folder can itself cover the path of a root.
        _mount(f"/proc/self/fd/{descriptor}", place, "", _MS_BIND, "")
        _mount("", place, "", _MS_BIND | _MS_REMOUNT | _MS_RDONLY | _MS_NOSUID | _MS_NODEV, "")
        os.close(descriptor)
        binds.append(Bind(str(place), root))
    return MountPlan(
        tuple(binds),
        _make_socket_dir(run_dir),
        _make_workspace(run_dir / "work", limits.work_dir_bytes, limits.inodes, uid),
        _make_workspace(run_dir / "out", limits.out_dir_bytes, limits.inodes, uid),
        links,
        masked,
    )


def remove_run_dir(run_dir: Path) -> None:
    """Remove the run's folder, name by name: the roots can be mounted under it and must not be deleted."""
    ctypes.CDLL(None).umount2(os.fsencode(run_dir), _MNT_DETACH)
    for name in (SOCKET_NAME, NETWORK_SOCKET_NAME):
        (run_dir / _SOCKET_DIR / name).unlink(missing_ok=True)
    for place in (run_dir / _SOCKET_DIR, run_dir):
        with contextlib.suppress(FileNotFoundError):
            place.rmdir()


def _make_socket_dir(run_dir: Path) -> str:
    place = run_dir / _SOCKET_DIR
    place.mkdir(mode=0o711)
    return str(place)


def _make_workspace(place: Path, size_bytes: int, inodes: int, uid: int) -> str:
    place.mkdir()
    options = f"mode=0700,uid={uid},gid={uid},size={size_bytes},nr_inodes={inodes}"
    _mount("tmpfs", place, "tmpfs", _MS_NOSUID | _MS_NODEV | _MS_NOEXEC, options)
    return str(place)


def _try_own_namespace() -> bool:
    """Leave the host's mount namespace; false if root is not allowed to (a container without the capability)."""
    if ctypes.CDLL(None, use_errno=True).unshare(_CLONE_NEWNS) != 0:
        return False
    _mount("", Path("/"), "", _MS_REC | _MS_PRIVATE, "")
    return True


def _mount(source: str, target: Path, kind: str, flags: int, options: str) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    arguments = (source.encode(), os.fsencode(target), kind.encode(), ctypes.c_ulong(flags), options.encode())
    if libc.mount(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), str(target))
