"""Calls of the S3 client: it blocks, so they run in threads, each with a limit, and its errors become ours."""

import asyncio
from collections.abc import Callable, Generator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any, Protocol, TypeVar, cast

import boto3
import urllib3.exceptions
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from everturn.errors import NotFound, Unavailable
from everturn.objects.s3_place import S3Place

THREADS = 16
TRIES = 3
CONNECT_TIMEOUT_S = 3.0
READ_TIMEOUT_S = 10.0
ABSENT = frozenset({"404", "NoSuchKey", "NotFound"})

T = TypeVar("T")


class _Raw(Protocol):
    def shutdown(self) -> None: ...


class Body(Protocol):
    """What comes of an object."""

    _raw_stream: _Raw

    def read(self, amt: int) -> bytes: ...
    def close(self) -> None: ...


class S3Client(Protocol):
    """What the driver uses of boto3, which has no types."""

    def put_object(self, *, Bucket: str, Key: str, Body: bytes, ContentMD5: str) -> object: ...
    def get_object(self, *, Bucket: str, Key: str, **more: str) -> Mapping[str, Any]: ...
    def head_object(self, *, Bucket: str, Key: str) -> object: ...
    def list_objects_v2(self, *, Bucket: str, Prefix: str, MaxKeys: int, **more: str) -> Mapping[str, Any]: ...
    def delete_object(self, *, Bucket: str, Key: str) -> object: ...
    def generate_presigned_url(self, method: str, *, Params: Mapping[str, str], ExpiresIn: int) -> str: ...


class S3Calls:
    """Runs calls, as many at a time as there are threads. One that hangs costs its thread until the socket's limit."""

    def __init__(self, *, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="s3")

    async def run(self, call: Callable[[], T]) -> T:
        """Raises NotFound or Unavailable."""
        try:
            async with asyncio.timeout(self._timeout_s):
                return await asyncio.get_running_loop().run_in_executor(self._threads, _translated, call)
        except TimeoutError as error:
            raise Unavailable(f"S3: no answer within {self._timeout_s:g} s") from error

    def drop(self, body: Body) -> None:
        """Let go of an object that is being read; a thread that still waits for its bytes is woken."""
        # close() would wait for that thread, and the event loop with it.
        with suppress(OSError, RuntimeError, ValueError):
            body._raw_stream.shutdown()  # pyright: ignore[reportPrivateUsage] botocore shows no other way
        self._threads.submit(_close, body)


def open_client(place: S3Place, endpoint: str | None) -> S3Client:
    """A client of this endpoint; keys, and a region that the URL does not name, come from where the SDK looks."""
    limit_s = place.timeout_s
    config = Config(
        signature_version="s3v4",
        connect_timeout=min(CONNECT_TIMEOUT_S, limit_s),
        read_timeout=min(READ_TIMEOUT_S, limit_s),
        retries={"mode": "standard", "total_max_attempts": TRIES},
        max_pool_connections=THREADS,
        # Newer checksums are unknown to many servers that speak S3; Content-MD5 is sent instead, and reads are hashed.
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
        s3={"addressing_style": place.style},
    )
    try:
        open_any = cast(Callable[..., S3Client], boto3.client)  # pyright: ignore[reportUnknownMemberType] it has no types
        return open_any("s3", endpoint_url=endpoint, region_name=place.region, config=config)
    except (BotoCoreError, ValueError) as error:
        raise Unavailable(f"S3: {error}") from error


def _translated(call: Callable[[], T]) -> T:
    with translated():
        return call()


@contextmanager
def translated() -> Generator[None]:
    """Turns the SDK's errors into ours."""
    try:
        yield
    except ClientError as error:
        raise (NotFound() if code_of(error) in ABSENT else Unavailable(f"S3: {error}")) from error
    except (BotoCoreError, urllib3.exceptions.HTTPError, OSError) as error:
        raise Unavailable(f"S3: {error}") from error


def code_of(error: ClientError) -> str:
    """What S3 calls its error; of a HEAD, which has no body, the status."""
    return str(cast(Mapping[str, Any], error.response).get("Error", {}).get("Code", ""))


def _close(body: Body) -> None:
    with suppress(BotoCoreError, urllib3.exceptions.HTTPError, OSError):
        body.close()
