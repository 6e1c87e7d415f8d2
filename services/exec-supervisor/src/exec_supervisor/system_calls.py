"""The system calls that the second wall rejects, for every launcher: by name, and some by arguments."""

from typing import Final

_OTHER_PROCESSES = ("kcmp", "pidfd_getfd", "process_madvise", "process_vm_readv", "process_vm_writev", "ptrace")
_KEYS = ("add_key", "keyctl", "request_key")
_IO_URING = ("io_uring_enter", "io_uring_register", "io_uring_setup")
_NAMESPACES = ("chroot", "pivot_root", "setns", "setdomainname", "sethostname", "unshare")
_OLD_MOUNTS = ("mount", "quotactl", "quotactl_fd", "swapoff", "swapon", "sysfs", "umount", "umount2", "ustat")
_NEW_MOUNTS_API = ("fsconfig", "fsmount", "fsopen", "fspick", "mount_setattr", "move_mount", "open_tree")
_HANDLES = ("fanotify_init", "lookup_dcookie", "name_to_handle_at", "open_by_handle_at")
_KERNEL_CODE = ("bpf", "create_module", "delete_module", "finit_module", "init_module", "kexec_file_load", "kexec_load")
_KERNEL_VIEWS = ("get_kernel_syms", "nfsservctl", "perf_event_open", "query_module", "syslog", "userfaultfd", "uselib")
_MACHINE = ("acct", "ioperm", "iopl", "modify_ldt", "personality", "reboot", "vhangup", "vm86", "vm86old")
_CLOCK = ("adjtimex", "clock_adjtime", "clock_settime", "settimeofday")
_MEMORY_PLACES = ("mbind", "migrate_pages", "move_pages", "set_mempolicy")
# Memory that no sum over resident pages includes, and that outlives its process.
_UNCOUNTED_MEMORY = ("memfd_create", "memfd_secret", "msgget", "semget", "shmget")
# Contexts of the older asynchronous I/O are counted for the whole machine (fs.aio-max-nr), across all users.
_ASYNC_IO = ("io_cancel", "io_destroy", "io_getevents", "io_pgetevents", "io_setup", "io_submit")
_MESSAGE_QUEUES = ("mq_getsetattr", "mq_notify", "mq_open", "mq_timedreceive", "mq_timedsend", "mq_unlink")
# All runs share the same library files: a watch on their folders reveals which of them other programs open, and when.
_WATCHES = ("inotify_add_watch",)

REFUSED: Final = (
    *_OTHER_PROCESSES,
    *_KEYS,
    *_IO_URING,
    *_NAMESPACES,
    *_OLD_MOUNTS,
    *_NEW_MOUNTS_API,
    *_HANDLES,
    *_KERNEL_CODE,
    *_KERNEL_VIEWS,
    *_MACHINE,
    *_CLOCK,
    *_MEMORY_PLACES,
    *_UNCOUNTED_MEMORY,
    *_ASYNC_IO,
    *_MESSAGE_QUEUES,
    *_WATCHES,
)
"""Calls that an ordinary program never needs; answered with EPERM."""
UNKNOWN: Final = ("clone3",)
"""Answered with ENOSYS: its flags are in memory that a filter can't read, and libc then falls back to clone."""
LATER: Final = frozenset(range(452, 512)) - {452, 454, 455, 456}
"""Numbers that Linux has assigned since 6.6, or will: a list of names can't contain future calls. Answered with ENOSYS,
as by an older kernel. fchmodat2 and the three futex calls are not included."""

_NEW_TIME, _NEW_MOUNTS, _NEW_CGROUP, _NEW_UTS = 0x00000080, 0x00020000, 0x02000000, 0x04000000
_NEW_IPC, _NEW_USER, _NEW_PID, _NEW_NET = 0x08000000, 0x10000000, 0x20000000, 0x40000000
NAMESPACE_FLAGS: Final = (_NEW_TIME, _NEW_MOUNTS, _NEW_CGROUP, _NEW_UTS, _NEW_IPC, _NEW_USER, _NEW_PID, _NEW_NET)
OWN_PROCESS: Final = 0
"""The only process id allowed for `prlimit64`: another one would lower the limits of the runner, which has the same
user, and so lose the outputs. libc passes 0 for the calling process."""

AF_UNIX: Final = 1
AF_INET: Final = 2
SOCK_STREAM: Final = 1
SOCKET_TYPE_BITS: Final = 0xF
TCP: Final = 6
"""For a program with a network: AF_INET, SOCK_STREAM and the protocol 0 or TCP; no IPv6, no datagrams, nothing raw."""
TCP_BUFFERS: Final = {"net.ipv4.tcp_rmem": "4096 65536 262144", "net.ipv4.tcp_wmem": "4096 65536 262144"}
"""Limits of the buffers of a program's connections, in its network namespace: the kernel's memory for TCP is shared by
the whole machine, and the usual limits are many megabytes for each connection."""
SOL_SOCKET: Final = 1
SO_ATTACH_FILTER: Final = 26
FIRST_REFUSED_SOCKET_OPTION: Final = 50
"""SO_ATTACH_BPF, the two that attach filters to a group of sockets (51 and 52), and later options: with these and
SO_ATTACH_FILTER a program would load code into a connection."""
FIRST_REFUSED_TCP_OPTION: Final = 31
"""TCP_ULP, which loads other protocols into a connection, and later options."""
S_IFMT: Final = 0o170000
DEVICE_TYPES: Final = (0o020000, 0o060000)
F_NOTIFY: Final = 1026
"""The command of `fcntl` that watches a folder, as `inotify_add_watch` does. Rejected under bubblewrap only: a
container has an overlay of its own, whose folders no other program opens."""
TIOCSTI: Final = 0x5412
TIOCLINUX: Final = 0x541C
