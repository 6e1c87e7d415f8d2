"""One fork per file, ended by the kernel at its limits."""

import json
import zlib
from io import BytesIO
from pathlib import Path

import pytest
from uploads.images import image, png_of
from uploads.pdfs import object_stream_bomb, pdf, stream

from ingress.attachments.structure.checker import TOO_LONG, TOO_MUCH, UNREADABLE, check_in_fork, run_checker
from ingress.attachments.structure.limits import Form


def children() -> str:
    """All of this thread; a fork that nobody waited for would be one."""
    return Path("/proc/thread-self/children").read_text()


@pytest.mark.parametrize(
    ("form", "data", "fault"),
    [
        ("pdf", pdf(), ""),
        ("webp", image("webp", (1900, 1900)), ""),
        # Announces few pixels and packs more than the memory holds: only those announced are unpacked.
        ("png", png_of(64, 64, zlib.compress(bytes(100_000_000))), ""),
        ("pdf", pdf(pages=501), "it has more than 500 pages"),
        ("png", png_of(8, 8, zlib.compress(b"")), UNREADABLE),
        ("gif", b"GIF89a", UNREADABLE),
        ("jpeg", b"junk", UNREADABLE),
    ],
)
def test_a_fork_says_what_is_wrong_and_is_gone(form: Form, data: bytes, fault: str) -> None:
    before = children()

    assert check_in_fork(form, data) == fault

    assert children() == before


@pytest.mark.parametrize(
    "data",
    [
        object_stream_bomb(100 * 2**20),
        pdf(stream(zlib.compress(bytes(100_000_000)).hex().encode() + b">", b"/Filter[/ASCIIHexDecode/FlateDecode]")),
    ],
)
def test_what_unpacks_to_more_than_the_memory_is_refused(data: bytes) -> None:
    assert check_in_fork("pdf", data) in (TOO_MUCH, UNREADABLE, "it is damaged or cut off", "it is damaged")


def test_a_file_that_keeps_the_processor_busy_is_refused() -> None:
    # Small pieces of a tree that fans out: every object is quick to write and slow to walk.
    many = [b"[" + b"<</A 1>>" * 20_000 + b"]"] * 60

    assert check_in_fork("pdf", pdf(*many)) in (TOO_LONG, TOO_MUCH, UNREADABLE)


def test_the_program_answers_until_its_input_ends() -> None:
    requests = b"".join(
        b'{"form": "pdf", "size": %d}\n%b' % (len(data), data) for data in (pdf(), pdf(pages=501), pdf())
    )

    answers = BytesIO()
    run_checker(BytesIO(requests), answers)

    faults = [json.loads(line)["fault"] for line in answers.getvalue().splitlines()]
    assert faults == ["", "it has more than 500 pages", ""]
