"""The program that checks files, `python -I -m ingress.attachments.structure.checker`: one confined fork per file.

`fault` of an answer is empty for a sound file. The libraries are loaded once; the effects of a file on them end with
its fork.
"""

import json
import sys
from collections.abc import Mapping
from typing import Any

from everturn.confinement.fork import hide_process, preload_encodings
from everturn.confinement.processes import run_answering
from ingress.attachments.structure.images import check_image, preload_readers
from ingress.attachments.structure.limits import LIMITS, MAX_FAULT_CHARS, Form, Sound, Unsound
from ingress.attachments.structure.office import check_office
from ingress.attachments.structure.pdf import check_pdf
from ingress.attachments.structure.text import check_text, preload_text


def answer_request(fields: Mapping[str, Any], data: bytes) -> bytes:
    """A JSON line with `fault`, `charset` and `change`, followed by content that replaces the file's own."""
    try:
        sound = check_content(fields["form"], data)
    except Unsound as fault:
        return _build_answer(fault=str(fault)[:MAX_FAULT_CHARS])
    except MemoryError:
        return _build_answer(fault=f"checking it takes more than {LIMITS.memory_bytes // 2**20} MiB of memory")
    return _build_answer(charset=sound.charset, change=sound.change) + sound.content


def _build_answer(*, fault: str = "", charset: str = "", change: str = "") -> bytes:
    return json.dumps({"fault": fault, "charset": charset, "change": change}).encode() + b"\n"


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


if __name__ == "__main__":
    hide_process()
    preload_encodings()
    preload_text()
    preload_readers()
    run_answering(sys.stdin.buffer, sys.stdout.buffer, answer_request, LIMITS)
