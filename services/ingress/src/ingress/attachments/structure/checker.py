"""The program that looks into files, `python -I -m ingress.attachments.structure.checker`: one fork per file, limited.

It reads a JSON line with `form` and `size` and then the file, answers a JSON line with `fault`, and again until its
input ends. A fault is empty for a sound file. The libraries are loaded once; what a file does to them ends with its
fork.
"""

import json
import os
import resource
import signal
import sys
from typing import BinaryIO

from ingress.attachments.structure.images import check_image
from ingress.attachments.structure.limits import CPU_S, MEMORY_BYTES, WALL_S, Form, Unsound
from ingress.attachments.structure.office import check_office
from ingress.attachments.structure.pdf import check_pdf

_MAX_FAULT_BYTES = 2048
TOO_LONG = f"looking into it takes more than {CPU_S:g} s"
TOO_MUCH = f"looking into it takes more than {MEMORY_BYTES // 2**20} MiB of memory"
UNREADABLE = "its content can't be read"


def find_fault(form: Form, data: bytes) -> str:
    """What is wrong with a file, empty when nothing is. Raises what the libraries raise for content they can't read."""
    try:
        match form:
            case "pdf":
                check_pdf(data)
            case "docx" | "pptx" | "xlsx":
                check_office(form, data)
            case "jpeg" | "png" | "gif" | "webp":
                check_image(form, data)
    except Unsound as fault:
        return str(fault)
    except MemoryError:
        return TOO_MUCH
    return ""


def run_checker(requests: BinaryIO, answers: BinaryIO) -> None:
    """Answer requests until there are no more."""
    while line := requests.readline():
        asked = json.loads(line)
        data = requests.read(asked["size"])
        answers.write(json.dumps({"fault": check_in_fork(asked["form"], data)}).encode() + b"\n")
        answers.flush()


def check_in_fork(form: Form, data: bytes) -> str:
    """What `find_fault` says within the limits, or which of them was met."""
    read_end, write_end = os.pipe()
    child = os.fork()
    if not child:
        os.close(read_end)
        _end_fork(form, data, write_end)
    os.close(write_end)
    with os.fdopen(read_end, "rb") as pipe:
        said = pipe.read(_MAX_FAULT_BYTES)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if status == 0:
        return said.decode(errors="replace")
    return TOO_LONG if -status in (signal.SIGPROF, signal.SIGALRM, signal.SIGXCPU) else UNREADABLE


def _end_fork(form: Form, data: bytes, write_end: int) -> None:
    """Never returns: an exception of a library ends the fork with a status that says so."""
    status = 1
    try:
        _limit()
        os.write(write_end, find_fault(form, data).encode()[:_MAX_FAULT_BYTES])
        status = 0
    finally:
        os._exit(status)


def _limit() -> None:
    """Timers without handlers: the kernel ends the fork whatever code it is in."""
    size_bytes = _load_size_bytes() + MEMORY_BYTES
    for what, limit in (
        (resource.RLIMIT_AS, size_bytes),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, 0),
    ):
        resource.setrlimit(what, (limit, limit))
    for number in (signal.SIGPROF, signal.SIGALRM):
        signal.signal(number, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_PROF, CPU_S)
    signal.setitimer(signal.ITIMER_REAL, WALL_S)


def _load_size_bytes() -> int:
    with open("/proc/self/statm", encoding="ascii") as numbers:
        return int(numbers.read().split()[0]) * resource.getpagesize()


if __name__ == "__main__":
    run_checker(sys.stdin.buffer, sys.stdout.buffer)
