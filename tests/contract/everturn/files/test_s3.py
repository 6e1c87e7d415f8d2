"""Objects in a bucket keep the contract on two servers; calls are bounded in time, and their errors are ours."""

import asyncio
import itertools
import threading
import time
import urllib.error
import urllib.request
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError, NoCredentialsError
from helpers.s3 import BUCKET, S3Server
from urllib3.exceptions import ProtocolError

from everturn.core.errors import Invalid, NotFound, Unavailable
from everturn.files.objects import AlteredObject
from everturn.files.opening import open_objects
from everturn.files.s3 import PROBE, S3Calls, S3Objects, code_of, open_client, open_s3, parse_s3_url, translated
from everturn_testing.files.objects_contract import Alter, ObjectsContract, key_of, read_all

_numbers = itertools.count(1)
pytestmark = pytest.mark.usefixtures("s3_keys")


@pytest.fixture
def prefix() -> str:
    return f"test-{next(_numbers)}"


class BucketContract(ObjectsContract):
    @pytest.fixture
    def objects(self, server: S3Server, prefix: str) -> S3Objects:
        return open_s3(server.url(prefix))

    @pytest.fixture
    def alter(self, server: S3Server, prefix: str) -> Alter:
        return lambda key, data: server.client().put_object(Bucket=BUCKET, Key=f"{prefix}/{key}", Body=data)

    @pytest.fixture
    def unreachable(self, server: S3Server) -> S3Objects:
        return open_s3(server.url("away", endpoint="http://127.0.0.1:9", timeout="2"))


class TestOnRclone(BucketContract):
    @pytest.fixture
    def server(self, rclone: S3Server) -> S3Server:
        return rclone


class TestOnMoto(BucketContract):
    @pytest.fixture
    def server(self, moto: S3Server) -> S3Server:
        return moto


async def test_two_stores_of_one_bucket_do_not_see_each_other(rclone: S3Server, prefix: str) -> None:
    one, two = open_s3(rclone.url(f"{prefix}/one")), open_s3(rclone.url(f"{prefix}/two"))
    await one.save(key_of(b"a"), b"a")

    assert (await two.load_page()).objects == ()
    assert [found.key for found in (await one.load_page()).objects] == [key_of(b"a")]


async def test_foreign_objects_are_not_listed(rclone: S3Server, prefix: str) -> None:
    objects = open_s3(rclone.url(prefix))
    rclone.client().put_object(Bucket=BUCKET, Key=f"{prefix}/somebody.txt", Body=b"else")
    await objects.check()
    await objects.save(key_of(b"a"), b"a")

    first = await objects.load_page(limit=2)
    rest = await objects.load_page(cursor=first.next_cursor, limit=2)

    assert [found.key for page in (first, rest) for found in page.objects] == [key_of(b"a")]


async def test_a_signed_url_is_valid_for_one_object_and_its_headers(rclone: S3Server, prefix: str) -> None:
    objects = open_s3(rclone.url(prefix))
    await objects.save(key_of(b"<script>"), b"<script>")

    url = await objects.try_presign(
        key_of(b"<script>"), content_type="text/html", disposition='attachment; filename="a.html"', lifetime_s=60
    )

    assert url is not None
    with await asyncio.to_thread(urllib.request.urlopen, url) as answer:
        assert answer.read() == b"<script>"
        assert answer.headers["content-type"] == "text/html"
        assert answer.headers["content-disposition"] == 'attachment; filename="a.html"'
    for bent in (url.replace("attachment", "inline"), url.replace("X-Amz-Expires=60", "X-Amz-Expires=600"), url + "0"):
        with pytest.raises(urllib.error.HTTPError, match="403"):
            await asyncio.to_thread(urllib.request.urlopen, bent)


async def test_urls_are_signed_for_the_address_that_browsers_use(rclone: S3Server) -> None:
    objects = open_s3(rclone.url("x", public="https://files.example.com"))

    url = await objects.try_presign(key_of(b"a"), content_type="text/css", disposition="inline", lifetime_s=60)

    assert url is not None
    assert url.startswith(f"https://files.example.com/{BUCKET}/x/{key_of(b'a')}?")


async def test_with_wrong_keys_the_store_is_unavailable(rclone: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "not-the-right-secret")
    monkeypatch.setattr(boto3, "DEFAULT_SESSION", None)  # it keeps the keys that it found first
    objects = open_s3(rclone.url("x"))

    with pytest.raises(Unavailable) as refusal:
        await objects.check()

    assert "secret" not in str(refusal.value)


async def test_a_missing_bucket_is_unavailable(rclone: S3Server) -> None:
    objects = open_s3(rclone.url("x").replace(BUCKET, "no-such-bucket"))

    with pytest.raises(Unavailable):
        await objects.load(key_of(b"a"), max_bytes=10)


@pytest.mark.parametrize("key", ["", "../x", key_of(b"a").upper(), PROBE])
async def test_a_malformed_key_is_invalid(rclone: S3Server, key: str) -> None:
    objects = open_s3(rclone.url("x"))

    with pytest.raises(Invalid):
        await objects.save(key, b"a")
    with pytest.raises(Invalid):
        await objects.load(key, max_bytes=1)
    with pytest.raises(Invalid):
        await objects.delete((key,))


async def test_bytes_that_are_not_those_of_the_key_are_not_stored(rclone: S3Server, prefix: str) -> None:
    objects = open_s3(rclone.url(prefix))

    with pytest.raises(Invalid):
        await objects.save(key_of(b"a"), b"b")

    assert (await objects.load_page()).objects == ()


async def test_an_unresponsive_server_takes_at_most_the_timeout(rclone: S3Server, prefix: str) -> None:
    patient, objects = open_s3(rclone.url(prefix)), open_s3(rclone.url(prefix, timeout="1"))
    await patient.save(key_of(b"a"), b"a")

    async with asyncio.timeout(20):
        with rclone.stopped():
            with pytest.raises(Unavailable):
                await objects.load(key_of(b"a"), max_bytes=10)
            with pytest.raises(Unavailable):
                await anext(aiter(objects.load_stream(key_of(b"a"))))

    assert await read_all(patient.load_stream(key_of(b"a"))) == b"a"


async def test_a_truncated_object_is_altered_wherever_it_was_cut(rclone: S3Server, prefix: str) -> None:
    objects, data = open_s3(rclone.url(prefix)), bytes(range(256)) * 4096
    await objects.save(key_of(data), data)
    for size in (len(data) - 1, 512 * 1024, 1, 0):
        rclone.client().put_object(Bucket=BUCKET, Key=f"{prefix}/{key_of(data)}", Body=data[:size])

        with pytest.raises(AlteredObject):
            await objects.load(key_of(data), max_bytes=len(data))
        with pytest.raises(AlteredObject):
            await read_all(objects.load_stream(key_of(data)))


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
def test_an_unread_body_is_released(rclone: S3Server) -> None:
    place = parse_s3_url(rclone.url("dropped"))
    rclone.client().put_object(Bucket=place.bucket, Key="dropped/x", Body=b"x" * 5_000_000)
    body = open_client(place, place.endpoint).get_object(Bucket=place.bucket, Key="dropped/x")["Body"]
    body.read(10)

    S3Calls(timeout_s=5).drop(body)

    with pytest.raises(Exception, match=r"."):
        while body.read(1_000_000):
            pass


class SlowBucket:
    """The client of a bucket whose server takes a while for each request."""

    def __init__(self, keys: list[str], answer_s: float) -> None:
        self.keys = set(keys)
        self._answer_s = answer_s

    def head_object(self, *, Bucket: str, Key: str) -> object:
        time.sleep(self._answer_s)
        if Key not in self.keys:
            raise client_error("404")
        return {}

    def delete_object(self, *, Bucket: str, Key: str) -> object:
        time.sleep(self._answer_s)
        self.keys.remove(Key)
        return {}


async def test_a_long_list_of_keys_is_deleted_within_the_limit_of_a_call() -> None:
    timeout_s = 1.0
    keys = [key_of(str(number).encode()) for number in range(100)]
    bucket: Any = SlowBucket(keys[1:], 3 * timeout_s / len(keys))
    objects = S3Objects(bucket, parse_s3_url(f"s3://bucket?timeout={timeout_s}"))

    assert await objects.delete(keys) == len(keys) - 1
    assert bucket.keys == set()


async def test_the_threads_of_a_bucket_end_with_it(rclone: S3Server, prefix: str) -> None:
    before = set(threading.enumerate())
    with open_objects(rclone.url(prefix)) as objects:
        await objects.check()
        started = {each for each in threading.enumerate() if each.name.startswith("s3")} - before
        assert started

    for thread in started:
        await asyncio.to_thread(thread.join, 30)
        assert not thread.is_alive()
