"""Bodies are capped while they stream, and their type is checked."""

import asyncio

import pytest
from fastapi import FastAPI
from starlette.types import Message

from ingress.admission.route import AdmittedRequest, admit_request, check_json_type, load_json, media_type
from ingress.errors import ProblemError


def build(chunks: list[bytes], **headers: str) -> AdmittedRequest:
    waiting = list(chunks)

    async def receive() -> Message:
        return {"type": "http.request", "body": waiting.pop(0), "more_body": bool(waiting)}

    raw = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    scope = {"type": "http", "method": "POST", "headers": raw, "app": FastAPI()}
    return admit_request(AdmittedRequest(scope, receive), max_body_bytes=10)


async def test_a_body_at_the_cap_is_read() -> None:
    assert await build([b"12345", b"67890"]).body() == b"1234567890"


async def test_a_body_one_byte_above_is_refused_while_it_streams() -> None:
    with pytest.raises(ProblemError) as refused:
        await build([b"12345", b"67890", b"1"]).body()

    assert refused.value.status_code == 413


async def test_a_body_that_stops_coming_is_given_up() -> None:
    async def never() -> Message:
        await asyncio.Event().wait()
        raise AssertionError

    stalled = AdmittedRequest(build([b""]).scope, never)
    stalled.idle_timeout_s = 0.01
    with pytest.raises(ProblemError) as refused:
        await stalled.body()

    assert refused.value.status_code == 408


async def test_a_body_that_drips_is_given_up_in_the_end() -> None:
    async def drip() -> Message:
        await asyncio.sleep(0.005)
        return {"type": "http.request", "body": b"", "more_body": True}

    dripping = AdmittedRequest(build([b""]).scope, drip)
    dripping.body_timeout_s = 0.05
    with pytest.raises(ProblemError, match="not complete") as refused:
        await dripping.body()

    assert refused.value.status_code == 408


async def test_a_client_that_goes_away_is_no_error_of_ours() -> None:
    async def gone() -> Message:
        return {"type": "http.disconnect"}

    with pytest.raises(ProblemError) as refused:
        await AdmittedRequest(build([b""]).scope, gone).body()

    assert refused.value.status_code == 400


@pytest.mark.parametrize("announced", ["11", "99999999999999999999999", "-1", "1e3", "\u0661"])
def test_an_invalid_or_too_large_content_length_is_refused_unread(announced: str) -> None:
    with pytest.raises(ProblemError) as refused:
        build([b""], content_length=announced)

    assert refused.value.status_code == 413


@pytest.mark.parametrize("coding", ["gzip", "deflate", "br", "identity, gzip"])
def test_compressed_bodies_are_refused(coding: str) -> None:
    with pytest.raises(ProblemError) as refused:
        build([b""], content_encoding=coding)

    assert refused.value.status_code == 415


async def test_json_is_strict_and_read_once() -> None:
    request = build([b'{"a":1}'])

    assert await request.json() == await request.json() == {"a": 1}


@pytest.mark.parametrize("sent", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"])
def test_other_types_than_json_are_refused(sent: str) -> None:
    with pytest.raises(ProblemError) as refused:
        check_json_type(build([b""], content_type=sent))

    assert refused.value.status_code == 415


def test_the_media_type_is_read_without_its_parameters() -> None:
    assert media_type(build([b""], content_type="Application/JSON; charset=utf-8")) == "application/json"
    assert media_type(build([b""])) == "application/octet-stream"


async def test_bad_json_names_what_it_was_in() -> None:
    with pytest.raises(ProblemError, match="The part 'message' is not valid JSON"):
        await load_json(b"{", "The part 'message'")


async def test_a_body_slower_than_the_minimum_rate_is_aborted_after_the_grace() -> None:
    async def drip() -> Message:
        await asyncio.sleep(0.005)
        return {"type": "http.request", "body": b"", "more_body": True}

    dripping = AdmittedRequest(build([b""]).scope, drip)
    dripping.grace_s = 0.05
    with pytest.raises(ProblemError, match="slower than 10000 bytes/s") as refused:
        await dripping.body()

    assert refused.value.status_code == 408
