"""The escape battery's program: tries each way out of the sandbox and prints, by name, what it was denied with."""

import ctypes
import fcntl
import json
import mmap
import os
import resource
import socket
import subprocess
import sys
import time

# ruff: noqa: SIM115, T201 - it probes what opens, in a process that ends right after, and its answer is what it prints

CHECKOUT, SECRET, ABSTRACT = sys.argv[1:]
"""Known outside: the folder of the checkout, a text in our environment, the name of a listening socket."""

CLONE_FIELDS = ("flags", "pidfd", "child", "parent", "exit", "stack", "size", "tls")
LIBC = ctypes.CDLL(None, use_errno=True)
PROBES = {}


def probe(function):
    PROBES[function.__name__] = function
    return function


def call(*arguments):
    """A raw system call; raises OSError."""
    result = LIBC.syscall(*[ctypes.c_long(a) if isinstance(a, int) else a for a in arguments])
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


@probe
def connect_ipv4():
    socket.create_connection(("1.1.1.1", 80), timeout=1)


@probe
def connect_ipv6():
    socket.socket(socket.AF_INET6, socket.SOCK_STREAM).connect(("::1", 80))


@probe
def connect_metadata_address():
    socket.socket(socket.AF_INET, socket.SOCK_STREAM).connect(("169.254.169.254", 80))


@probe
def resolve_a_name():
    socket.getaddrinfo("example.org", 80)


@probe
def raw_socket():
    socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)


@probe
def packet_socket():
    socket.socket(17, socket.SOCK_RAW)


@probe
def netlink_socket():
    socket.socket(16, socket.SOCK_RAW)


@probe
def vsock_socket():
    socket.socket(40, socket.SOCK_STREAM)


@probe
def crypto_socket():
    socket.socket(38, socket.SOCK_SEQPACKET)


@probe
def abstract_unix_socket_of_the_host():
    socket.socket(socket.AF_UNIX).connect("\0" + ABSTRACT)


@probe
def read_shadow():
    open("/etc/shadow").read()


@probe
def read_passwd_of_the_host():
    open("/etc/passwd").read()


@probe
def read_the_checkout():
    open(CHECKOUT + "/pyproject.toml").read()


@probe
def list_a_home():
    if os.listdir("/root") != [".pyenv"] or os.listdir("/root/.pyenv") != ["versions"]:
        return
    raise PermissionError("only the way to the interpreter")


@probe
def list_the_run_folder():
    names = os.listdir("/run")
    if names != ["everturn"]:
        return
    raise PermissionError("only the gateway")


@probe
def see_a_secret_in_any_process():
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                if SECRET in open(f"/proc/{name}/environ").read() + open(f"/proc/{name}/cmdline").read():
                    return
            except OSError:
                pass
    raise PermissionError("no process shows it")


@probe
def see_host_processes():
    if len([name for name in os.listdir("/proc") if name.isdigit()]) > 4:
        return
    raise PermissionError("only its own")


@probe
def a_first_process_that_may_do_more_than_this_one():
    """Bubblewrap's own process has the same user, so its memory is open: it must not be worth anything."""
    names = ("Uid", "Gid", "Groups", "CapPrm", "CapEff", "CapBnd", "NoNewPrivs", "Seccomp", "Seccomp_filters")
    mine, first = (dict(line.split(":", 1) for line in open(f"/proc/{pid}/status")) for pid in ("self", 1))
    if any(mine[name].split() != first[name].split() for name in names):
        return
    if any(
        os.readlink(f"/proc/1/ns/{kind}") != os.readlink(f"/proc/self/ns/{kind}") for kind in os.listdir("/proc/1/ns")
    ):
        return
    raise PermissionError("it has the same walls")


@probe
def open_memory_of_the_runner():
    open(f"/proc/{os.getppid()}/mem", "r+b")


@probe
def take_descriptors_of_the_runner():
    os.open(f"/proc/{os.getppid()}/fd/1", os.O_WRONLY)


@probe
def root_of_the_first_process():
    if sorted(os.listdir("/proc/1/root")) != sorted(os.listdir("/")):
        return
    raise PermissionError("it is ours")


@probe
def docker_socket():
    socket.socket(socket.AF_UNIX).connect("/var/run/docker.sock")


@probe
def write_to_root():
    open("/x", "w")


@probe
def write_to_usr():
    open("/usr/lib/x", "w")


@probe
def write_to_the_interpreter():
    open(os.path.dirname(os.__file__) + "/x.py", "w")


@probe
def write_to_the_environment():
    open(sys.prefix + "/x", "w")


@probe
def write_to_tmp():
    open("/tmp/x", "w")


@probe
def write_to_shared_memory():
    open("/dev/shm/x", "w")


@probe
def write_to_the_gateway_folder():
    open("/run/everturn/x", "w")


@probe
def replace_the_gateway():
    os.unlink("/run/everturn/gateway.sock")


@probe
def write_to_proc_sys():
    open("/proc/sys/kernel/hostname", "w").write("x")


@probe
def become_root():
    os.setuid(0)


@probe
def run_a_setuid_program():
    done = subprocess.run(["/usr/bin/su", "-c", "id"], capture_output=True, stdin=subprocess.DEVNULL, check=False)
    if done.returncode:
        raise PermissionError(done.stderr.decode()[:80])


@probe
def new_user_namespace_by_unshare():
    if LIBC.unshare(0x10000000):
        raise OSError(ctypes.get_errno(), "unshare")


@probe
def new_user_namespace_by_clone():
    call(56, 0x10000000 | 17, 0, 0, 0, 0)


@probe
def new_user_namespace_by_clone3():
    class Args(ctypes.Structure):
        _fields_ = [(name, ctypes.c_uint64) for name in CLONE_FIELDS]

    args = Args(flags=0x10000000, exit=17)
    call(435, ctypes.byref(args), ctypes.sizeof(args))


@probe
def enter_a_namespace():
    if LIBC.setns(os.open("/proc/1/ns/mnt", os.O_RDONLY), 0):
        raise OSError(ctypes.get_errno(), "setns")


@probe
def mount_a_file_system():
    if LIBC.mount(b"tmpfs", b"/workspace/work", b"tmpfs", 0, None):
        raise OSError(ctypes.get_errno(), "mount")


@probe
def mount_with_the_newer_calls():
    call(430, ctypes.c_char_p(b"tmpfs"), 0)


@probe
def remount_root_writable():
    if LIBC.mount(None, b"/", None, 32, None):
        raise OSError(ctypes.get_errno(), "mount")


@probe
def change_root():
    os.chroot("/workspace/work")


@probe
def make_a_device():
    os.mknod("/workspace/work/sda", 0o60600, os.makedev(8, 0))


@probe
def read_a_disk():
    open("/dev/sda", "rb").read(1)


@probe
def trace_another_process():
    if LIBC.ptrace(16, os.getppid(), 0, 0) < 0:
        raise OSError(ctypes.get_errno(), "ptrace")


@probe
def read_another_process():
    call(310, os.getppid(), 0, 0, 0, 0, 0)


@probe
def kernel_keyring():
    call(250, 0, -5, 1)


@probe
def io_uring():
    call(425, 8, ctypes.create_string_buffer(120))


@probe
def bpf():
    call(321, 0, ctypes.create_string_buffer(120), 120)


@probe
def perf_events():
    call(298, ctypes.create_string_buffer(120), 0, -1, -1, 0)


@probe
def userfaultfd():
    call(323, 0)


@probe
def anonymous_file():
    os.memfd_create("x")


@probe
def open_by_handle():
    call(304, -100, ctypes.create_string_buffer(64), 0)


@probe
def kernel_log():
    if LIBC.klogctl(3, ctypes.create_string_buffer(10), 10) < 0:
        raise OSError(ctypes.get_errno(), "syslog")


@probe
def load_a_module():
    call(175, 0, 0, 0)


@probe
def reboot():
    call(169, 0, 0, 0, 0)


@probe
def set_the_clock():
    time.clock_settime(time.CLOCK_REALTIME, 0)


@probe
def push_into_the_terminal():
    fcntl.ioctl(0, 0x5412, b"x")


@probe
def call_with_the_32_bit_numbers():
    """Number 20 is getpid there; mapping executable memory is allowed, entering by int 0x80 ends the process."""
    code = b"\xb8\x14\x00\x00\x00\xcd\x80\xc3"
    page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    page.write(code)
    pid = os.fork()
    if pid == 0:
        ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(page)))()
        os._exit(0)
    if os.waitpid(pid, 0)[1]:
        raise PermissionError("the process was ended")


@probe
def raise_a_limit():
    resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


def denials():
    answers = {}
    for name, function in PROBES.items():
        try:
            function()
            answers[name] = None
        except (OSError, ValueError) as error:
            answers[name] = f"{type(error).__name__}: {error}"
    return answers


print(json.dumps(denials()))
