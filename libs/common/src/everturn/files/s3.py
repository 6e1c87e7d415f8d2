"""Objects in a bucket of any S3-compatible server, each at `<prefix><key>`. The S3 client blocks, so its calls run in
threads, each with a time limit, and its errors are translated to ours."""

import asyncio
import base64
import hashlib
import time
from collections.abc import AsyncGenerator, Callable, Collection, Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, Protocol, TypeVar, cast
from urllib.parse import parse_qsl, unquote, urlsplit

import boto3
import urllib3.exceptions
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from everturn.core.errors import Invalid, NotFound, Unavailable
from everturn.core.ids import ConversationId
from everturn.files.objects import (
    CHUNK_BYTES,
    MAX_OBJECTS,
    ObjectPage,
    StoredObject,
    check_bytes,
    check_genuine,
    check_key,
    check_limit,
    hold_back,
    is_key,
)

FORM = "s3://bucket/prefix?endpoint=http://host:port&region=...&public=...&style=path|virtual&timeout=20"
DEFAULT_TIMEOUT_S = 20.0
MAX_TIMEOUT_S = 300.0
_OPTIONS = frozenset({"endpoint", "public", "region", "style", "timeout"})

THREADS = 16
TRIES = 3
CONNECT_TIMEOUT_S = 3.0
READ_TIMEOUT_S = 10.0
ABSENT = frozenset({"404", "NoSuchKey", "NotFound"})

T = TypeVar("T")

DELETE_SIDE_BY_SIDE = 4
"""Leaves threads for other calls during an erasure."""
WRITE_CHECK_S = 60.0
PROBE = "write-check"
"""Next to the keys, and never one of them."""


@dataclass(frozen=True, slots=True)
class S3Place:
    """`prefix` is empty or ends with a slash. `endpoint` None is the provider's own; `public` is the endpoint for
    browsers. Access keys are never part of an s3 URL."""

    bucket: str
    prefix: str
    endpoint: str | None
    public: str | None
    region: str | None
    style: Literal["path", "virtual", "auto"]
    timeout_s: float


def parse_s3_url(url: str) -> S3Place:
    """Raises Invalid, without repeating possible secrets: passwords in the URL are rejected."""
    parts = urlsplit(url)
    if "@" in parts.netloc or parts.fragment:
        raise Invalid("OBJECTS_URL contains a password or a fragment. Set the keys in AWS_ACCESS_KEY_ID and the like.")
    options = _read_options(parts.query)
    prefix = unquote(parts.path).strip("/")
    if not parts.netloc or ":" in parts.netloc or any(name in ("", ".", "..") for name in prefix.split("/") if prefix):
        raise Invalid(f"OBJECTS_URL names no bucket and prefix; expected {FORM}.")
    endpoint = options.get("endpoint")
    return S3Place(
        bucket=parts.netloc,
        prefix=f"{prefix}/" if prefix else "",
        endpoint=endpoint,
        public=options.get("public", endpoint),
        region=options.get("region"),
        style=_read_style(options.get("style") or _choose_style(parts.netloc, endpoint)),
        timeout_s=_read_timeout(options.get("timeout", "")),
    )


def _read_options(query: str) -> dict[str, str]:
    try:
        pairs = parse_qsl(query, strict_parsing=True, max_num_fields=len(_OPTIONS)) if query else []
    except ValueError as error:
        raise Invalid(f"The options of OBJECTS_URL can't be read; expected {FORM}.") from error
    options = dict(pairs)
    if len(options) < len(pairs) or not options.keys() <= _OPTIONS:
        known = ", ".join(sorted(_OPTIONS))
        raise Invalid(f"OBJECTS_URL repeats an option or has an unknown one; the options are {known}.")
    for name in ("endpoint", "public"):
        if name in options:
            _check_address(name, options[name])
    return options


def _check_address(name: str, address: str) -> None:
    parts = urlsplit(address)
    if parts.scheme not in ("http", "https") or not parts.netloc or "@" in parts.netloc or parts.query:
        raise Invalid(f"The {name} in OBJECTS_URL must be http://host:port or https://host, without a password.")


def _choose_style(bucket: str, endpoint: str | None) -> str:
    """URLs that the SDK signs in the style `auto` name the global host of S3, which redirects, and which some regions
    refuse. A certificate of AWS does not cover the name of a bucket with a dot."""
    if endpoint:
        return "path"
    return "auto" if "." in bucket else "virtual"


def _read_style(text: str) -> Literal["path", "virtual", "auto"]:
    match text:
        case "path" | "virtual" | "auto":
            return text
        case _:
            raise Invalid("The style in OBJECTS_URL must be path, virtual or auto.")


def _read_timeout(text: str) -> float:
    try:
        seconds = float(text or DEFAULT_TIMEOUT_S)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds <= MAX_TIMEOUT_S:
        raise Invalid(f"The timeout in OBJECTS_URL must be above 0 and at most {MAX_TIMEOUT_S:g} seconds.")
    return seconds


class Body(Protocol):
    """The body of an object being read."""

    _raw_stream: Any

    def read(self, amt: int) -> bytes: ...
    def close(self) -> None: ...


class S3Client(Protocol):
    """The part of boto3 that the driver uses; boto3 has no types."""

    def put_object(self, *, Bucket: str, Key: str, Body: bytes, ContentMD5: str) -> object: ...
    def get_object(self, *, Bucket: str, Key: str, **more: str) -> Mapping[str, Any]: ...
    def head_object(self, *, Bucket: str, Key: str) -> object: ...
    def list_objects_v2(self, *, Bucket: str, Prefix: str, MaxKeys: int, **more: str) -> Mapping[str, Any]: ...
    def delete_object(self, *, Bucket: str, Key: str) -> object: ...
    def generate_presigned_url(self, method: str, *, Params: Mapping[str, str], ExpiresIn: int) -> str: ...


class S3Calls:
    """Runs calls, as many at a time as there are threads. One that hangs blocks its thread until the socket's time
    limit."""

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
        """Release an object that is being read; wakes a thread that still waits for its bytes."""
        # close() would wait for that thread and block the event loop.
        with suppress(OSError, RuntimeError, ValueError):
            body._raw_stream.shutdown()  # pyright: ignore[reportPrivateUsage] botocore shows no other way
        # After `close` it is left to the garbage collector.
        with suppress(RuntimeError):
            self._threads.submit(_close, body)

    def close(self) -> None:
        """End the threads; calls that still run end at their socket's time limit."""
        self._threads.shutdown(wait=False, cancel_futures=True)


def open_client(place: S3Place, endpoint: str | None) -> S3Client:
    """A client of this endpoint; keys, and a region that the URL does not name, are found as the SDK does."""
    limit_s = place.timeout_s
    config = Config(
        signature_version="s3v4",
        connect_timeout=min(CONNECT_TIMEOUT_S, limit_s),
        read_timeout=min(READ_TIMEOUT_S, limit_s),
        retries={"mode": "standard", "total_max_attempts": TRIES},
        max_pool_connections=THREADS,
        # Many S3-compatible servers don't know newer checksums; Content-MD5 is sent instead, and reads are hashed.
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
    """Translates the SDK's errors to ours."""
    try:
        yield
    except ClientError as error:
        raise (NotFound() if code_of(error) in ABSENT else Unavailable(f"S3: {error}")) from error
    except (BotoCoreError, urllib3.exceptions.HTTPError, OSError) as error:
        raise Unavailable(f"S3: {error}") from error


def code_of(error: ClientError) -> str:
    """The error code of S3; for a HEAD, which has no body, the status."""
    return str(cast(Mapping[str, Any], error.response).get("Error", {}).get("Code", ""))


def _close(body: Body) -> None:
    with suppress(BotoCoreError, urllib3.exceptions.HTTPError, OSError):
        body.close()


def open_s3(url: str) -> "S3Objects":
    """`s3://bucket/prefix?endpoint=...`. The server is not contacted yet. Raises Invalid for another URL."""
    place = parse_s3_url(url)
    client = open_client(place, place.endpoint)
    public = client if place.public == place.endpoint else open_client(place, place.public)
    return S3Objects(client, place, public=public)


class S3Objects:
    """Implements Objects. `public` signs URLs for clients that reach the bucket by another address than we do.

    Reads of a whole object are verified; reads of a part return what the bucket has.
    """

    @property
    def kind(self) -> str:
        return "S3"

    def __init__(
        self,
        client: S3Client,
        place: S3Place,
        *,
        public: S3Client | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = client
        self._public = public or client
        self._bucket, self._prefix = place.bucket, place.prefix
        self._calls = S3Calls(timeout_s=place.timeout_s)
        self._monotonic = monotonic
        self._written_at: float | None = None

    def close(self) -> None:
        """End the threads. Nothing may be called after that."""
        self._calls.close()

    async def save(self, key: str, data: bytes) -> None:
        check_key(key)
        await self._calls.run(lambda: self._save(key, data))

    async def load(self, key: str, *, max_bytes: int) -> bytes:
        check_key(key)
        return await self._calls.run(lambda: self._load(key, max_bytes))

    async def load_stream(self, key: str) -> AsyncGenerator[bytes]:
        check_key(key)
        async with aclosing(hold_back(key, self._read(key, None))) as chunks:
            async for chunk in chunks:
                yield chunk

    async def load_range(self, key: str, *, start: int, end: int) -> AsyncGenerator[bytes]:
        check_key(key)
        if start < end:
            async with aclosing(self._read(key, f"bytes={start}-{end - 1}")) as chunks:
                async for chunk in chunks:
                    yield chunk

    async def load_page(self, prefix: str = "", *, cursor: str | None = None, limit: int = MAX_OBJECTS) -> ObjectPage:
        check_limit(limit)
        return await self._calls.run(lambda: self._load_page(prefix, cursor, limit))

    async def try_presign(self, key: str, *, content_type: str, disposition: str, lifetime_s: int) -> str | None:
        check_key(key)
        asked = {**self._at(key), "ResponseContentType": content_type, "ResponseContentDisposition": disposition}
        # In a thread, because its signing keys may have to be fetched again.
        return await self._calls.run(
            lambda: self._public.generate_presigned_url("get_object", Params=asked, ExpiresIn=lifetime_s)
        )

    async def delete(self, keys: Sequence[str]) -> int:
        for key in keys:
            check_key(key)
        return await self._delete(tuple(dict.fromkeys(keys)), self._delete_present)

    async def delete_conversation(self, conversation_id: ConversationId, *, keep: Collection[str] = ()) -> int:
        deleted, page, kept = 0, ObjectPage((), ""), frozenset(keep)
        while page.next_cursor is not None:
            page = await self.load_page(f"{conversation_id}/", cursor=page.next_cursor)
            keys = [found.key for found in page.objects if found.key not in kept]
            deleted += await self._delete(keys, self._delete_listed)
        return deleted

    async def check(self) -> None:
        """List the bucket, and once a minute also write into it."""
        await self._calls.run(self._check)

    def _save(self, key: str, data: bytes) -> None:
        check_bytes(key, data)
        self._put(key, data)

    def _put(self, key: str, data: bytes) -> None:
        # The server compares, and rejects bytes changed in transit. MD5 is not used for security here.
        md5 = base64.b64encode(hashlib.md5(data, usedforsecurity=False).digest()).decode()
        self._client.put_object(**self._at(key), Body=data, ContentMD5=md5)

    def _load(self, key: str, max_bytes: int) -> bytes:
        answer = self._client.get_object(**self._at(key))
        body, size = cast(Body, answer["Body"]), cast(int, answer["ContentLength"])
        try:
            if size > max_bytes:
                raise Invalid(f"{key} has {size} bytes; at most {max_bytes} are read.")
            data = body.read(size + 1)
        finally:
            body.close()
        check_genuine(key, hashlib.sha256(data).hexdigest())
        return data

    async def _read(self, key: str, part: str | None) -> AsyncGenerator[bytes]:
        body = await self._calls.run(lambda: self._try_get(key, part))
        if body is None:
            return
        try:
            while chunk := await self._calls.run(lambda: body.read(CHUNK_BYTES)):
                yield chunk
        finally:
            self._calls.drop(body)

    def _try_get(self, key: str, part: str | None) -> Body | None:
        """None when the part begins after the end."""
        try:
            answer = self._client.get_object(**self._at(key), **({} if part is None else {"Range": part}))
        except ClientError as error:
            if code_of(error) == "InvalidRange":
                return None
            raise
        return cast(Body, answer["Body"])

    def _load_page(self, prefix: str, cursor: str | None, limit: int) -> ObjectPage:
        after = {"StartAfter": self._prefix + cursor} if cursor else {}
        answer = self._client.list_objects_v2(Bucket=self._bucket, Prefix=self._prefix + prefix, MaxKeys=limit, **after)
        rows = [(row["Key"].removeprefix(self._prefix), row) for row in answer.get("Contents", ())]
        found = tuple(StoredObject(key, row["Size"], row["LastModified"]) for key, row in rows if is_key(key))
        return ObjectPage(found, rows[-1][0] if rows and answer.get("IsTruncated") else None)

    def _exists(self, key: str) -> bool:
        try:
            self._client.head_object(**self._at(key))
        except ClientError as error:
            if code_of(error) in ABSENT:
                return False
            raise
        return True

    async def _delete(self, keys: Sequence[str], delete: Callable[[str], bool]) -> int:
        """How many were deleted. Each key has its own time limit, so a call that fails has made progress, and its
        repetition completes it."""
        deleted = 0
        for first in range(0, len(keys), DELETE_SIDE_BY_SIDE):
            try:
                # One request per key: not every S3-compatible server accepts many at once.
                async with asyncio.TaskGroup() as group:
                    batch = keys[first : first + DELETE_SIDE_BY_SIDE]
                    running = [group.create_task(self._calls.run(partial(delete, key))) for key in batch]
            except ExceptionGroup as failures:
                # The first one is the cause; the others were cancelled because of it, or report the same.
                raise failures.exceptions[0] from failures
            deleted += sum(task.result() for task in running)
        return deleted

    def _delete_present(self, key: str) -> bool:
        """False if there was no such object; S3 itself does not say so."""
        return self._exists(key) and self._delete_listed(key)

    def _delete_listed(self, key: str) -> bool:
        self._client.delete_object(**self._at(key))
        return True

    def _check(self) -> None:
        self._client.list_objects_v2(Bucket=self._bucket, Prefix=self._prefix, MaxKeys=1)
        now = self._monotonic()
        if self._written_at is None or now - self._written_at >= WRITE_CHECK_S:
            self._put(PROBE, b"")
            self._written_at = now

    def _at(self, key: str) -> dict[str, str]:
        return {"Bucket": self._bucket, "Key": self._prefix + key}
