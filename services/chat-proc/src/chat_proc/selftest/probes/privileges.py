"""Attempts to become more than an ordinary user: other users, capabilities, namespaces, mounts, devices."""

import ctypes
import os
import resource
import signal
import stat
import subprocess
from collections.abc import Iterator
from functools import partial
from typing import Final

from chat_proc.selftest.probes.attempts import Denied, Group, Surroundings, call, try_each

PRIVILEGES: Final = Group("privileges")
NAMESPACES: Final = Group("namespaces and mounts")
GROUPS: Final = (
    PRIVILEGES,
    NAMESPACES,
)
_SIGCHLD: Final = 17
_NEW_USER, _NEW_MOUNTS, _NEW_NET, _NEW_PID = 0x10000000, 0x00020000, 0x40000000, 0x20000000
_AT_FDCWD: Final = -100
_WAIT_S: Final = 5.0
_CLONE_FIELDS: Final = ("flags", "pidfd", "child", "parent", "exit", "stack", "size", "tls")
_PROGRAM_FOLDERS: Final = ("/usr/bin", "/usr/sbin", "/usr/lib", "/bin", "/sbin", "/opt")


class CloneArguments(ctypes.Structure):
    """`struct clone_args` of the kernel."""

    _fields_ = [(name, ctypes.c_uint64) for name in _CLONE_FIELDS]


@PRIVILEGES.attempt
def become_root(around: Surroundings) -> None:
    os.setresuid(0, 0, 0)


@PRIVILEGES.attempt
def become_the_user_of_the_supervisor(around: Surroundings) -> None:
    os.setresuid(1002, 1002, 1002)


@PRIVILEGES.attempt
def join_a_group(around: Surroundings) -> None:
    os.setgroups([0])


@PRIVILEGES.attempt
def hold_a_capability(around: Surroundings) -> str:
    with open("/proc/self/status", encoding="ascii") as status:
        fields = dict(line.split(":", 1) for line in status)
    held = [name for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb") if int(fields[name], 16)]
    if held:
        return held[0]
    raise Denied("all sets are empty")


@PRIVILEGES.attempt
def run_without_no_new_privs_or_a_filter(around: Surroundings) -> str:
    with open("/proc/self/status", encoding="ascii") as status:
        fields = dict(line.split(":", 1) for line in status)
    if fields["NoNewPrivs"].strip() != "1" or fields["Seccomp"].strip() != "2":
        return f"NoNewPrivs {fields['NoNewPrivs']}, Seccomp {fields['Seccomp']}"
    raise Denied("the flag and a filter are set")


@PRIVILEGES.attempt
def run_a_program_of_another_user(around: Surroundings) -> None:
    _run("/usr/bin/su", "-c", "id")


@PRIVILEGES.attempt
def find_a_setuid_program(around: Surroundings) -> str:
    """Setuid bits may exist if the mount ignores them."""
    for path in _find_marked():
        if not os.statvfs(path).f_flag & os.ST_NOSUID:
            return path
    raise Denied("there is none where the setuid bit takes effect")


@PRIVILEGES.attempt
def make_a_program_setuid(around: Surroundings) -> None:
    """The bit may be set on the program's own file; the mounts must ignore it."""
    place = "/workspace/work/marked"
    with open(place, "w", encoding="ascii") as file:
        file.write("#!/bin/sh\nid\n")
    os.chmod(place, 0o6755)  # noqa: S103 - the attempt checks that this bit has no effect
    if os.statvfs(place).f_flag & os.ST_NOSUID:
        raise Denied("the folder is mounted nosuid")


@PRIVILEGES.attempt
def make_root_the_owner_of_a_file(around: Surroundings) -> None:
    with open("/workspace/work/given", "w", encoding="ascii"):
        pass
    os.chown("/workspace/work/given", 0, 0)


@PRIVILEGES.attempt
def give_a_program_capabilities(around: Surroundings) -> None:
    with open("/workspace/work/able", "w", encoding="ascii"):
        pass
    os.setxattr(
        "/workspace/work/able", "security.capability", bytes.fromhex("0100000200200000000000000000000000000000")
    )


@PRIVILEGES.attempt
def create_a_block_device(around: Surroundings) -> None:
    os.mknod("/workspace/work/disk", stat.S_IFBLK | 0o600, os.makedev(8, 0))


@PRIVILEGES.attempt
def create_a_character_device(around: Surroundings) -> None:
    os.mknod("/workspace/work/memory", stat.S_IFCHR | 0o600, os.makedev(1, 1))


@PRIVILEGES.attempt
def raise_a_limit(around: Surroundings) -> None:
    for kind in (resource.RLIMIT_AS, resource.RLIMIT_CPU, resource.RLIMIT_FSIZE, resource.RLIMIT_NOFILE):
        try:
            resource.setrlimit(kind, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        except ValueError as refusal:
            raise Denied(str(refusal)) from refusal


@NAMESPACES.attempt
def create_a_user_namespace_with_unshare(around: Surroundings) -> int:
    return call("unshare", _NEW_USER)


@NAMESPACES.attempt
def create_other_namespaces_with_unshare(around: Surroundings) -> int:
    return call("unshare", _NEW_MOUNTS | _NEW_NET | _NEW_PID)


@NAMESPACES.attempt
def create_a_user_namespace_with_clone(around: Surroundings) -> int:
    return _end_child(call("clone", _NEW_USER | _SIGCHLD, 0, 0, 0, 0))


@NAMESPACES.attempt
def create_a_user_namespace_with_clone3(around: Surroundings) -> int:
    arguments = CloneArguments(flags=_NEW_USER, exit=_SIGCHLD)
    return _end_child(call("clone3", arguments, ctypes.sizeof(arguments)))


@NAMESPACES.attempt
def run_unshare(around: Surroundings) -> None:
    _run("/usr/bin/unshare", "--user", "--map-root-user", "true")


@NAMESPACES.attempt
def enter_a_namespace(around: Surroundings) -> int:
    return call("setns", 0, 0)


@NAMESPACES.attempt
def mount_a_file_system(around: Surroundings) -> int:
    return call("mount", b"tmpfs", b"/workspace/work", b"tmpfs", 0, 0)


@NAMESPACES.attempt
def make_the_root_writable(around: Surroundings) -> int:
    return call("mount", 0, b"/", 0, 32, 0)


@NAMESPACES.attempt
def unmount_a_file_system(around: Surroundings) -> int:
    return call("umount2", b"/proc", 2)


@NAMESPACES.attempt
def mount_with_the_newer_calls(around: Surroundings) -> object:
    return try_each(
        (
            partial(call, "fsopen", b"tmpfs", 0),
            partial(call, "open_tree", _AT_FDCWD, b"/", 1),
            partial(call, "fspick", _AT_FDCWD, b"/", 0),
            partial(call, "fsmount", 0, 0, 0),
            partial(call, "move_mount", _AT_FDCWD, b"/", _AT_FDCWD, b"/proc", 0),
            partial(call, "mount_setattr", _AT_FDCWD, b"/", 0, bytes(32), 32),
        )
    )


@NAMESPACES.attempt
def change_the_root(around: Surroundings) -> None:
    os.chroot("/workspace/work")


@NAMESPACES.attempt
def change_the_root_with_pivot_root(around: Surroundings) -> int:
    return call("pivot_root", b"/workspace/work", b"/workspace/work")


@NAMESPACES.attempt
def change_the_host_name(around: Surroundings) -> int:
    return call("sethostname", b"x", 1)


def _end_child(pid: int) -> int:
    """Runs in the parent, and in the child that should not exist."""
    if pid == 0:
        os._exit(0)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return pid


def _find_marked() -> Iterator[str]:
    for folder in filter(os.path.isdir, _PROGRAM_FOLDERS):
        for entry in os.scandir(folder):
            if entry.is_file(follow_symlinks=False) and entry.stat().st_mode & (stat.S_ISUID | stat.S_ISGID):
                yield entry.path


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, stdin=subprocess.DEVNULL, check=False, timeout=_WAIT_S)
    if done.returncode:
        raise PermissionError(done.stderr.decode("utf-8", "replace").strip()[:100])
