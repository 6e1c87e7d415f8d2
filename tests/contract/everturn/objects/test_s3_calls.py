"""Calls in threads: bounded in time, and their errors are ours."""

import asyncio
import threading
from typing import Any

import pytest
from botocore.exceptions import ClientError, NoCredentialsError
from parts.s3 import S3Server
from urllib3.exceptions import ProtocolError

from everturn.core.errors import NotFound, Unavailable
from everturn.files.s3 import S3Calls, code_of, open_client, parse_s3_url, translated


def client_error(code: str) -> ClientError:
    answer: Any = {"Error": {"Code": code}}
    return ClientError(answer, "GetObject")


@pytest.mark.parametrize("code", ["404", "NoSuchKey"])
def test_an_absent_object_is_not_found(code: str) -> None:
    with pytest.raises(NotFound), translated():
        raise client_error(code)


@pytest.mark.parametrize(
    "error",
    [
        client_error("NoSuchBucket"),
        client_error("AccessDenied"),
        client_error("SlowDown"),
        NoCredentialsError(),
        ProtocolError("cut"),
        ConnectionResetError(),
    ],
)
def test_everything_else_may_pass_and_is_unavailable(error: Exception) -> None:
    with pytest.raises(Unavailable), translated():
        raise error


def test_an_error_without_a_code_has_none() -> None:
    nothing: Any = {}
    assert code_of(ClientError(nothing, "GetObject")) == ""


async def test_a_call_that_hangs_ends_for_its_caller_at_the_limit() -> None:
    calls, release = S3Calls(timeout_s=0.05), threading.Event()
    try:
        with pytest.raises(Unavailable, match="no answer"):
            async with asyncio.timeout(30):
                await calls.run(release.wait)
    finally:
        release.set()


@pytest.mark.usefixtures("s3_keys")
def test_a_body_that_nobody_wants_any_more_is_let_go(rclone: S3Server) -> None:
    place = parse_s3_url(rclone.url("dropped"))
    rclone.client().put_object(Bucket=place.bucket, Key="dropped/x", Body=b"x" * 5_000_000)
    body = open_client(place, place.endpoint).get_object(Bucket=place.bucket, Key="dropped/x")["Body"]
    body.read(10)

    S3Calls(timeout_s=5).drop(body)

    with pytest.raises(Exception, match=r"."):
        while body.read(1_000_000):
            pass
