"""Attempts to read files of others and to write outside of the program's two folders."""

import os
import sys
from functools import partial
from pathlib import Path
from typing import Final

from chat_proc.selftest.probes.attempts import Denied, Group, Surroundings, call, try_each

READING: Final = Group("host files")
WRITING: Final = Group("writing outside")
GROUPS: Final = (
    READING,
    WRITING,
)
_AT_FDCWD: Final = -100
_PLACES_OF_THEIR_OWN: Final = ("/proc", "/sys", "/workspace/work", "/workspace/out")
_USUAL_PLACES: Final = (
    *("", "/tmp", "/var/tmp", "/dev/shm", "/dev/mqueue", "/dev", "/run", "/run/lock", "/etc", "/usr/lib", "/home"),  # noqa: S108
    *("/root", "/workspace", "/mnt", "/opt", "/var", "/srv"),
)
_DEVICES: Final = (
    *("sda", "vda", "xvda", "nvme0n1", "dm-0", "loop0", "mem", "kmem", "port", "kmsg", "fuse", "kvm", "net/tun"),
    *("vsock", "vhost-net", "btrfs-control", "mapper/control", "loop-control", "console", "tty0", "input/event0"),
)
_LEVELS: Final = 4
_OWN_NAME: Final = "everturn-probe"


def _read(path: str) -> str:
    """The beginning of a file. It is opened non-blocking, because a special file may never deliver data."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        return os.read(descriptor, 64).decode("utf-8", "replace")
    finally:
        os.close(descriptor)


def _write(path: str, text: str = "x") -> None:
    """Write a file; the attempt's own files are removed afterwards."""
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    if path.endswith(_OWN_NAME):
        os.unlink(path)


@READING.attempt
def read_a_file_of_the_host(around: Surroundings) -> str:
    return _read(around.host_file)


@READING.attempt
def read_a_file_of_the_host_through_the_first_process(around: Surroundings) -> str:
    return _read(f"/proc/1/root{around.host_file}")


@READING.attempt
def read_a_file_of_the_host_through_any_working_folder(around: Surroundings) -> object:
    up = "../" * 12
    pids = filter(str.isdigit, os.listdir("/proc"))
    return try_each(partial(_read, f"/proc/{pid}/cwd/{up}{around.host_file}") for pid in pids)


@READING.attempt
def read_the_shadow_password_file(around: Surroundings) -> str:
    return _read("/etc/shadow")


@READING.attempt
def read_a_home_folder(around: Surroundings) -> str:
    """The interpreter can be under a home, so the path to it is visible; its siblings must not be."""
    names = [name for home in ("/root", "/home") if os.path.isdir(home) for name in _list(home)]
    way = {
        part for base in (sys.base_prefix, os.path.realpath(sys.executable), sys.prefix) for part in Path(base).parts
    }
    if extra := [name for name in names if name not in way]:
        return extra[0]
    raise Denied("they contain only the path to the interpreter")


@READING.attempt
def read_a_disk_or_another_device(around: Surroundings) -> object:
    return try_each(partial(_read, f"/dev/{name}") for name in _DEVICES)


@READING.attempt
def read_kernel_memory(around: Surroundings) -> str:
    return _read("/proc/kcore")


@READING.attempt
def read_kernel_addresses(around: Surroundings) -> str:
    with open("/proc/kallsyms", encoding="ascii") as symbols:
        line = symbols.readline()
    if int(line.split()[0], 16):
        return line
    raise Denied("all addresses are zero")


@READING.attempt
def open_a_file_by_handle(around: Surroundings) -> int:
    return call("open_by_handle_at", _AT_FDCWD, bytes(64), os.O_RDONLY)


@READING.attempt
def get_a_file_handle(around: Surroundings) -> int:
    return call("name_to_handle_at", _AT_FDCWD, b"/", bytes(64), bytes(8), 0)


@READING.attempt
def find_a_secret_of_the_worker(around: Surroundings) -> str:
    return _find_text(around.canary)


@READING.attempt
def find_data_of_another_run(around: Surroundings) -> str:
    return _find_text(around.neighbour)


@WRITING.attempt
def write_outside_the_two_folders(around: Surroundings) -> str:
    """Tries every folder of a writable mount, four levels deep; read-only mounts are skipped."""
    visited = 0
    for mount in _writable_mounts():
        for folder, folders, _ in os.walk(mount):
            folders[:] = [name for name in folders if os.path.join(folder, name) not in _PLACES_OF_THEIR_OWN]
            if folder.count("/") >= _LEVELS:
                folders.clear()
            visited += 1
            if os.access(folder, os.W_OK) and _can_write(folder):
                return folder
    raise Denied(f"{visited} folders refused")


@WRITING.attempt
def write_to_a_common_system_folder(around: Surroundings) -> object:
    return try_each(partial(_write, f"{folder}/{_OWN_NAME}") for folder in _USUAL_PLACES)


@WRITING.attempt
def write_under_proc_sys(around: Surroundings) -> object:
    names = (
        "kernel/hostname",
        "kernel/core_pattern",
        "kernel/modprobe",
        "vm/overcommit_memory",
        "fs/protected_symlinks",
    )
    return try_each(partial(_write, f"/proc/sys/{name}") for name in names)


@WRITING.attempt
def write_under_sys(around: Surroundings) -> str:
    if not os.path.isdir("/sys"):
        raise Denied("there is none")
    for folder, _, names in os.walk("/sys"):
        for name in names:
            if os.access(os.path.join(folder, name), os.W_OK):
                return os.path.join(folder, name)
    raise Denied("nothing there can be written")


@WRITING.attempt
def trigger_a_sysrq_command(around: Surroundings) -> None:
    _write("/proc/sysrq-trigger", "h")


@WRITING.attempt
def run_a_host_program_through_a_core_dump(around: Surroundings) -> None:
    _write("/proc/sys/kernel/core_pattern", "|/workspace/work/x")


@WRITING.attempt
def run_a_host_program_through_a_control_group(around: Surroundings) -> object:
    places = ("release_agent", "cgroup.procs", "memory/release_agent", "rdma/release_agent", "pids/cgroup.procs")
    return try_each(partial(_write, f"/sys/fs/cgroup/{place}") for place in places)


@WRITING.attempt
def replace_the_gateway(around: Surroundings) -> None:
    os.unlink("/run/everturn/gateway.sock")


@WRITING.attempt
def fill_the_folder_of_the_gateway(around: Surroundings) -> None:
    _write("/run/everturn/x")


@WRITING.attempt
def change_the_library_of_the_runner(around: Surroundings) -> None:
    _write(os.path.join(os.path.dirname(os.__file__), "x.py"))


@WRITING.attempt
def change_the_program_of_the_first_process(around: Surroundings) -> None:
    os.close(os.open("/proc/1/exe", os.O_WRONLY))


@WRITING.attempt
def change_its_own_interpreter(around: Surroundings) -> None:
    os.close(os.open("/proc/self/exe", os.O_WRONLY))


@WRITING.attempt
def link_a_foreign_file_into_the_outputs(around: Surroundings) -> None:
    os.link(os.__file__, "/workspace/out/hard")


def _writable_mounts() -> list[str]:
    with open("/proc/self/mountinfo", encoding="utf-8") as mounts:
        fields = [line.split() for line in mounts]
    return [
        mount[4]
        for mount in fields
        if "rw" in mount[5].split(",") and not mount[4].startswith(_PLACES_OF_THEIR_OWN) and os.path.isdir(mount[4])
    ]


def _list(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except PermissionError:
        return []


def _can_write(folder: str) -> bool:
    try:
        _write(os.path.join(folder, _OWN_NAME))
    except OSError:
        return False
    return True


def _find_text(wanted: str) -> str:
    """Where a text is found: in what processes expose, in names and in small files of shared places."""
    for place in _shared_places():
        if wanted in place:
            return place
        try:
            with open(place, "rb") as file:
                if wanted.encode() in file.read(1 << 16):
                    return place
        except OSError:
            continue
    raise Denied("no process and no shared folder shows it")


def _shared_places() -> list[str]:
    processes = [
        f"/proc/{pid}/{name}" for pid in os.listdir("/proc") if pid.isdigit() for name in ("environ", "cmdline")
    ]
    files = [
        os.path.join(folder, name)
        for root in ("/run", "/tmp", "/var/tmp", "/dev/shm", "/workspace/out")  # noqa: S108 - places to look into
        for folder, _, names in os.walk(root)
        for name in names
    ]
    return [*processes, "/proc/net/unix", "/proc/self/mountinfo", *filter(os.path.isfile, files)]
