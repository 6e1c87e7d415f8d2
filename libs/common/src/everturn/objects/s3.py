"""Objects in a bucket of anything that speaks S3, each at `<prefix><key>`."""

import asyncio
import base64
import hashlib
import time
from collections.abc import AsyncGenerator, Callable, Collection, Sequence
from contextlib import aclosing
from functools import partial
from typing import Final, cast

from botocore.exceptions import ClientError

from everturn.errors import Invalid
from everturn.model.ids import ConversationId
from everturn.objects.keys import check_bytes, check_genuine, check_key, hold_back, is_key
from everturn.objects.s3_calls import ABSENT, Body, S3Calls, S3Client, code_of, open_client
from everturn.objects.s3_place import S3Place, parse_s3_url
from everturn.ports.objects import CHUNK_BYTES, MAX_OBJECTS, ObjectPage, StoredObject, check_limit

DELETE_SIDE_BY_SIDE = 4
"""So that an erasure leaves threads to others."""
WRITE_CHECK_S = 60.0
PROBE = "write-check"
"""Beside the keys, and never one of them."""


def open_s3(url: str) -> "S3Objects":
    """`s3://bucket/prefix?endpoint=...`. Nothing is asked yet. Raises Invalid for another URL."""
    place = parse_s3_url(url)
    client = open_client(place, place.endpoint)
    public = client if place.public == place.endpoint else open_client(place, place.public)
    return S3Objects(client, place, public=public)


class S3Objects:
    """Implements Objects. `public` signs URLs for those who reach the bucket by another address than we do.

    A read of a whole object is hashed; one of a part comes as the bucket has it.
    """

    kind: Final = "S3"

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
        # In a thread, because the keys that it signs with may have to be fetched anew.
        return await self._calls.run(
            lambda: self._public.generate_presigned_url("get_object", Params=asked, ExpiresIn=lifetime_s)
        )

    async def delete(self, keys: Sequence[str]) -> int:
        for key in keys:
            check_key(key)
        present = await self._calls.run(lambda: [key for key in dict.fromkeys(keys) if self._exists(key)])
        await self._delete(present)
        return len(present)

    async def delete_conversation(self, conversation_id: ConversationId, *, keep: Collection[str] = ()) -> int:
        deleted, page, kept = 0, ObjectPage((), ""), frozenset(keep)
        while page.next_cursor is not None:
            page = await self.load_page(f"{conversation_id}/", cursor=page.next_cursor)
            keys = [found.key for found in page.objects if found.key not in kept]
            await self._delete(keys)
            deleted += len(keys)
        return deleted

    async def check(self) -> None:
        """Look into the bucket, and once a minute write into it as well."""
        await self._calls.run(self._check)

    def _save(self, key: str, data: bytes) -> None:
        check_bytes(key, data)
        self._put(key, data)

    def _put(self, key: str, data: bytes) -> None:
        # The server compares: bytes that changed on the way are refused. MD5 is no secret's guard here.
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
        """None when the part begins behind the end."""
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

    async def _delete(self, keys: Sequence[str]) -> None:
        for first in range(0, len(keys), DELETE_SIDE_BY_SIDE):
            try:
                await self._delete_some(keys[first : first + DELETE_SIDE_BY_SIDE])
            except ExceptionGroup as failures:
                # The first one is the cause; the others were cancelled for it or tell the same.
                raise failures.exceptions[0] from failures

    async def _delete_some(self, keys: Sequence[str]) -> None:
        # One request a key: not everything that speaks S3 takes many at once.
        async with asyncio.TaskGroup() as group:
            for key in keys:
                group.create_task(self._calls.run(partial(self._client.delete_object, **self._at(key))))

    def _check(self) -> None:
        self._client.list_objects_v2(Bucket=self._bucket, Prefix=self._prefix, MaxKeys=1)
        now = self._monotonic()
        if self._written_at is None or now - self._written_at >= WRITE_CHECK_S:
            self._put(PROBE, b"")
            self._written_at = now

    def _at(self, key: str) -> dict[str, str]:
        return {"Bucket": self._bucket, "Key": self._prefix + key}
