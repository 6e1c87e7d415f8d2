"""The program that checks files, `python -I -m ingress.attachments.structure.checker`: one confined fork per file.

It reads a JSON line with `form` and `size`, followed by the file. It writes a JSON line with `fault`, `charset`,
`change` and `size`, followed by that many bytes of replacement content. It repeats this until its input ends. `fault`
is empty for a sound file. The libraries are loaded once; the effects of a file on them end with its fork.
"""

import json
import sys
from collections.abc import Callable
from typing import BinaryIO

from everturn.confinement import fork
from everturn.confinement.fork import ForkLimits, hide_process, preload_encodings
from ingress.attachments.structure.images import check_image, preload_readers
from ingress.attachments.structure.limits import CPU_S, MAX_CONTENT_BYTES, MEMORY_BYTES, WALL_S, Form, Sound, Unsound
from ingress.attachments.structure.office import check_office
from ingress.attachments.structure.pdf import check_pdf
from ingress.attachments.structure.text import check_text, preload_text

_MAX_LINE_BYTES = 4096
_MAX_SENTENCE_CHARS = 1000
LIMITS = ForkLimits(
    memory_bytes=MEMORY_BYTES, cpu_s=CPU_S, wall_s=WALL_S, answer_bytes=_MAX_LINE_BYTES + MAX_CONTENT_BYTES
)
TOO_LONG = f"checking it takes more than {CPU_S:g} s"
TOO_MUCH = f"checking it takes more than {MEMORY_BYTES // 2**20} MiB of memory"
UNREADABLE = "its content can't be read"


def check_content(form: Form, data: bytes) -> Sound:
    """Raises Unsound, and what the libraries raise for unreadable content."""
    match form:
        case "pdf":
            return check_pdf(data)
        case "docx" | "pptx" | "xlsx":
            check_office(form, data)
            return Sound()
        case "jpeg" | "png" | "gif" | "webp":
            return check_image(form, data)
        case "text":
            return check_text(data)


def run_checker(requests: BinaryIO, answers: BinaryIO) -> None:
    """Answer requests until the input ends."""
    while line := requests.readline():
        request = json.loads(line)
        data = requests.read(request["size"])
        answers.write(check_in_fork(request["form"], data))
        answers.flush()


def check_in_fork(form: Form, data: bytes) -> bytes:
    """The answer about a file: the result of its check, or which limit it exceeded."""
    return run_confined(lambda: _answer(form, data))


def _answer(form: Form, data: bytes) -> bytes:
    try:
        return build_answer(check_content(form, data))
    except Unsound as fault:
        return build_fault(str(fault))
    except MemoryError:
        return build_fault(TOO_MUCH)


def build_answer(sound: Sound) -> bytes:
    """The header line of an answer, followed by the content."""
    head = {"fault": "", "charset": sound.charset, "change": sound.change, "size": len(sound.content)}
    return json.dumps(head).encode() + b"\n" + sound.content


def build_fault(fault: str) -> bytes:
    """The header line of an answer about a rejected file."""
    head = {"fault": fault[:_MAX_SENTENCE_CHARS], "charset": "", "change": "", "size": 0}
    return json.dumps(head).encode() + b"\n"


def run_confined(check: Callable[[], bytes]) -> bytes:
    """Run `check` in a fork that can do nothing else, and return its answer."""
    result = fork.run_confined(check, LIMITS)
    if result.ended == "answered" and _is_answer(result.answer):
        return result.answer
    return build_fault(TOO_LONG if result.ended == "time" else UNREADABLE)


def _is_answer(answer: bytes) -> bool:
    """Whether the answer has the documented form. A fork that a malicious file controls can write anything."""
    line, _, content = answer.partition(b"\n")
    try:
        head = json.loads(line[:_MAX_LINE_BYTES])
        texts = [head["fault"], head["charset"], head["change"]]
        return all(isinstance(text, str) for text in texts) and head["size"] == len(content)
    except (ValueError, KeyError, TypeError):
        return False


if __name__ == "__main__":
    hide_process()
    preload_encodings()
    preload_text()
    preload_readers()
    run_checker(sys.stdin.buffer, sys.stdout.buffer)
