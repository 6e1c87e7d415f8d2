"""One fork per file, ended by the kernel at its limits."""

import json
import zlib
from io import BytesIO
from pathlib import Path

import pytest
from uploads.images import image, png_of, png_of_zeros
from uploads.pdfs import object_stream_bomb, pdf, stream

from everturn.confinement.fork import ForkResult, preload_encodings, run_confined
from everturn.confinement.processes import run_answering
from ingress.attachments.structure.checker import answer_request
from ingress.attachments.structure.checks import UNREADABLE, read_answer
from ingress.attachments.structure.images import preload_readers
from ingress.attachments.structure.limits import LIMITS, Form, Sound, Unsound
from ingress.attachments.structure.text import preload_text

TOO_LONG = "checking it takes more than 2 s"
TOO_MUCH = "checking it takes more than 64 MiB of memory"


@pytest.fixture(scope="module", autouse=True)
def loaded() -> None:
    """What the checker loads before it forks, because a fork can't."""
    preload_encodings()
    preload_text()
    preload_readers()


def children() -> str:
    """The children of this thread; a fork that was not waited for would be one."""
    return Path("/proc/thread-self/children").read_text()


def check_in_fork(form: Form, data: bytes) -> Sound:
    return read_answer(run_confined(lambda: answer_request({"form": form}, data), LIMITS))


def find_fault(form: Form, data: bytes) -> str:
    try:
        check_in_fork(form, data)
    except Unsound as fault:
        return str(fault)
    return ""


@pytest.mark.parametrize(
    ("form", "data", "fault"),
    [
        ("pdf", pdf(), ""),
        ("text", "Grüße, мир, 日本".encode(), ""),
        ("text", "Привет, мир. Это проверка.".encode("koi8_u"), ""),
        ("text", "これは日本語のテキストです。".encode("cp932"), ""),
        ("png", png_of_zeros(5472, 3648), ""),
        ("webp", image("webp", (2560, 1920)), ""),
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

    assert find_fault(form, data) == fault

    assert children() == before


@pytest.mark.parametrize(
    "data",
    [
        object_stream_bomb(100 * 2**20),
        pdf(stream(zlib.compress(bytes(100_000_000)).hex().encode() + b">", b"/Filter[/ASCIIHexDecode/FlateDecode]")),
    ],
)
def test_what_unpacks_to_more_than_the_memory_is_refused(data: bytes) -> None:
    assert find_fault("pdf", data) in (TOO_MUCH, UNREADABLE, "it is damaged or truncated", "it is damaged")


def test_a_file_that_keeps_the_processor_busy_is_refused() -> None:
    # Small pieces of a tree that fans out: every object is quick to write and slow to walk.
    many = [b"[" + b"<</A 1>>" * 20_000 + b"]"] * 60

    assert find_fault("pdf", pdf(*many)) in (TOO_LONG, TOO_MUCH, UNREADABLE)


def test_the_program_answers_until_its_input_ends() -> None:
    requests = b"".join(
        b'{"form": "pdf", "size": %d}\n%b' % (len(data), data) for data in (pdf(), pdf(pages=501), pdf())
    )

    answers = BytesIO()
    run_answering(BytesIO(requests), answers, answer_request, LIMITS)

    faults = [json.loads(line)["fault"] for line in answers.getvalue().splitlines()[1::2]]
    assert faults == ["", "it has more than 500 pages", ""]


def test_content_that_replaces_the_files_comes_back_behind_the_answer() -> None:
    assert check_in_fork("jpeg", image("jpeg") + bytes(range(256))).content == image("jpeg")


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"{}\n",
        b"[]\n",
        b"[" * 8_000 + b"\n",
        b'{"fault": ""',
        b'{"fault":1,"charset":"","change":""}\n',
        b'{"fault":"","charset":"","change":""}' + b" " * 8_192 + b"\n",
    ],
)
def test_a_fork_that_answers_otherwise_than_it_should_has_read_nothing(answer: bytes) -> None:
    with pytest.raises(Unsound, match=UNREADABLE):
        read_answer(ForkResult("answered", answer))
