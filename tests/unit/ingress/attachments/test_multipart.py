"""Multipart messages, whatever pieces they come in."""

from itertools import pairwise

import pytest
from fastapi import FastAPI
from hypothesis import given
from hypothesis import strategies as st
from starlette.types import Message

from ingress.admission.route import AdmittedRequest, admit_request
from ingress.attachments.multipart import read_multipart
from ingress.errors import ProblemError

BOUNDARY = "xxBOUNDARYxx"
MESSAGE = b'Content-Disposition: form-data; name="message"\r\nContent-Type: application/json\r\n\r\n{"text":"hi"}'


def file_part(name: bytes = b"a.csv", data: bytes = b"a,b\r\n1,2\r\n", kind: bytes = b"text/csv") -> bytes:
    head = b'Content-Disposition: form-data; name="files"; filename="%b"\r\nContent-Type: %b\r\n\r\n' % (name, kind)
    return head + data


def body(*parts: bytes) -> bytes:
    joined = b"".join(b"--%b\r\n%b\r\n" % (BOUNDARY.encode(), part) for part in parts)
    return joined + b"--%b--\r\n" % BOUNDARY.encode()


def request(raw: bytes, *, cuts: list[int] | None = None, content_type: str | None = None) -> AdmittedRequest:
    edges = sorted({0, len(raw), *(cut % (len(raw) + 1) for cut in cuts or [])})
    waiting = [raw[start:end] for start, end in pairwise(edges)] or [b""]

    async def receive() -> Message:
        return {"type": "http.request", "body": waiting.pop(0), "more_body": bool(waiting)}

    kind = content_type or f"multipart/form-data; boundary={BOUNDARY}"
    scope = {"type": "http", "method": "POST", "headers": [(b"content-type", kind.encode())], "app": FastAPI()}
    return admit_request(AdmittedRequest(scope, receive), max_body_bytes=1_000_000)


async def status(raw: bytes, *, content_type: str | None = None) -> int:
    with pytest.raises(ProblemError) as refused:
        await read_multipart(request(raw, content_type=content_type), max_files=2, json_bytes=1_000)
    return refused.value.status_code


@given(st.lists(st.integers(0, 10_000), max_size=12))
async def test_every_cut_gives_the_same_message_and_files(cuts: list[int]) -> None:
    data = b"\r\n--xxBOUNDARYx\r\n--\r\n" * 3
    raw = body(MESSAGE, file_part(), file_part(b"b.bin", data, b"Application/Octet-Stream; x=y"))

    message, files = await read_multipart(request(raw, cuts=cuts), max_files=2, json_bytes=1_000)

    assert message == {"text": "hi"}
    assert [(file.filename, file.declared, file.data) for file in files] == [
        ("a.csv", "text/csv", b"a,b\r\n1,2\r\n"),
        ("b.bin", "application/octet-stream", data),
    ]


async def test_names_may_be_utf8_and_keep_what_cleaning_will_drop() -> None:
    raw = body(MESSAGE, file_part("../grüße.csv".encode()))

    _, files = await read_multipart(request(raw), max_files=2, json_bytes=1_000)

    assert files[0].filename == "../grüße.csv"


async def test_what_browsers_escape_in_a_name_is_read_back_and_nothing_else() -> None:
    raw = body(MESSAGE, file_part(b"5%22 x%0D%0Ay 100%25.csv"))

    _, files = await read_multipart(request(raw), max_files=2, json_bytes=1_000)

    assert files[0].filename == '5" x\r\ny 100%25.csv'


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"junk",
        body(MESSAGE)[:-10],
        b"--" + BOUNDARY.encode() + b"\r\n\r\n",
        body(MESSAGE).replace(b":", b"\x00", 1),
    ],
)
async def test_a_body_that_is_no_multipart_is_malformed(raw: bytes) -> None:
    assert await status(raw) == 400


@pytest.mark.parametrize(
    "kind", ["multipart/form-data", "multipart/form-data; boundary=", f"multipart/form-data; boundary={'x' * 300}"]
)
async def test_a_type_without_a_usable_boundary_is_malformed(kind: str) -> None:
    assert await status(body(MESSAGE), content_type=kind) == 400


async def test_bad_json_in_the_message_part_is_malformed() -> None:
    assert await status(body(MESSAGE.replace(b'"hi"', b'"hi","text":"b"'))) == 400


async def test_endless_part_headers_are_malformed() -> None:
    assert await status(body(b"X-Long: " + b"x" * 9000 + b"\r\n" + MESSAGE)) == 400


@pytest.mark.parametrize(
    "parts",
    [[file_part()], [MESSAGE, MESSAGE], [MESSAGE, MESSAGE.replace(b'"message"', b'"other"')], [MESSAGE, b"\r\nx"]],
)
async def test_other_parts_than_one_message_and_files_are_not_acceptable(parts: list[bytes]) -> None:
    assert await status(body(*parts)) == 422


async def test_one_file_too_many_is_too_large() -> None:
    assert await status(body(MESSAGE, *[file_part()] * 3)) == 413
