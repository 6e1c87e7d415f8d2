"""The program that looks into files, `python -I -m ingress.attachments.structure.checker`: one fork per file, limited.

It reads a JSON line with `form` and `size` and then the file, answers a JSON line with `fault`, and again until its
input ends. A fault is empty for a sound file. The libraries are loaded once; what a file does to them ends with its
fork.
"""

import json
import os
import signal
import sys
from collections.abc import Callable
from typing import BinaryIO

from ingress.attachments.structure.confinement import confine_fork, hide_process, preload_encodings
from ingress.attachments.structure.images import check_image, preload_readers
from ingress.attachments.structure.limits import CPU_S, MEMORY_BYTES, Form, Unsound
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
    return run_confined(lambda: find_fault(form, data))


def run_confined(look: Callable[[], str]) -> str:
    """What `look` says in a fork that can do nothing else."""
    read_end, write_end = os.pipe()
    child = os.fork()
    if not child:
        os.close(read_end)
        _end_fork(look, write_end)
    os.close(write_end)
    with os.fdopen(read_end, "rb") as pipe:
        said = pipe.read(_MAX_FAULT_BYTES)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if status == 0:
        return said.decode(errors="replace")
    return TOO_LONG if -status in (signal.SIGPROF, signal.SIGALRM, signal.SIGXCPU) else UNREADABLE


def _end_fork(look: Callable[[], str], write_end: int) -> None:
    """Never returns: an exception of a library ends the fork with a status that says so."""
    status = 1
    try:
        answer = confine_fork(write_end)
        os.write(answer, look().encode()[:_MAX_FAULT_BYTES])
        status = 0
    finally:
        os._exit(status)


if __name__ == "__main__":
    hide_process()
    preload_encodings()
    preload_readers()
    run_checker(sys.stdin.buffer, sys.stdout.buffer)
