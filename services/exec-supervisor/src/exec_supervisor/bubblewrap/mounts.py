"""The folders that bubblewrap shows the program, made accessible to uid 1001.

Bubblewrap runs as an ordinary user and can't bind paths below a folder such as a 0700 home. A supervisor that is root
therefore creates a mount namespace and binds each folder below the run's; nothing of it is visible outside, and the
kernel removes it with the last process in it.
"""

import contextlib
import ctypes
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from everturn.execution.messages import GATEWAY_SOCKET, RunLimits

_CLONE_NEWNS: Final = 0x00020000
_MS_RDONLY, _MS_NOSUID, _MS_NODEV, _MS_NOEXEC, _MS_REMOUNT = 1, 2, 4, 8, 32
_MS_BIND, _MS_REC, _MS_PRIVATE = 4096, 16384, 1 << 18
_MNT_DETACH: Final = 2

_SOCKET_DIR: Final = "gateway"
SOCKET_NAME: Final = Path(GATEWAY_SOCKET).name


@dataclass(frozen=True, slots=True)
class Bind:
    """A folder or file at `source` on this machine, visible at `target` in the sandbox."""

    source: str
    target: str


@dataclass(frozen=True, slots=True)
class MountPlan:
    """What to bind. Without `work` and `out` bubblewrap creates these two, with a size limit but no inode limit."""

    read_only: tuple[Bind, ...]
    socket_dir: str
    work: str | None = None
    out: str | None = None


def make_run_dir(run_dir: Path) -> None:
    """Create the run's folder, which must not exist yet. Raises OSError."""
    run_dir.mkdir()
    os.chmod(run_dir, 0o711)  # noqa: S103 - the dropped user passes through, it can't list


def build_mount_plan(run_dir: Path, roots: tuple[str, ...], limits: RunLimits, uid: int) -> MountPlan:
    """Fill `run_dir`: staged binds and tmpfs folders if this process can mount, otherwise the roots themselves."""
    if os.geteuid() != 0 or not _try_own_namespace():
        return MountPlan(tuple(Bind(root, root) for root in roots), _make_socket_dir(run_dir))
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
    )


def remove_run_dir(run_dir: Path) -> None:
    """Remove the run's folder, name by name: the roots can be mounted below it and must not be deleted."""
    ctypes.CDLL(None).umount2(os.fsencode(run_dir), _MNT_DETACH)
    (run_dir / _SOCKET_DIR / SOCKET_NAME).unlink(missing_ok=True)
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
