"""Keys: which are ours, and a stream that ends only when its bytes are right."""

import hashlib
from collections.abc import AsyncGenerator

import pytest

from everturn.core.errors import Invalid
from everturn.files.model import exchange_key, manifest_key, object_key, upload_key
from everturn.files.objects import AlteredObject, check_bytes, check_key, hold_back, is_genuine, is_key
from everturn_testing.core import SequentialIds

IDS = SequentialIds()
CONVERSATION = IDS.conversation()
KEY = object_key(CONVERSATION, hashlib.sha256(b"abc").hexdigest())
UPLOAD = upload_key(CONVERSATION, hashlib.sha256(b"abc").hexdigest(), IDS.artifact())
MANIFEST = manifest_key(CONVERSATION, IDS.turn(), 12)
EXCHANGE = exchange_key(CONVERSATION, IDS.turn(), "exec_1.ab", 2_000)


async def stream(*chunks: bytes) -> AsyncGenerator[bytes]:
    for chunk in chunks:
        yield chunk


@pytest.mark.parametrize("key", [KEY, UPLOAD, MANIFEST, EXCHANGE])
def test_objects_uploads_and_manifests_have_keys_of_ours(key: str) -> None:
    check_key(key)


@pytest.mark.parametrize(
    "text",
    [
        "",
        CONVERSATION,
        f"{CONVERSATION}/",
        f"{KEY}0",
        f"{KEY}/x",
        f"/{KEY}",
        f"{MANIFEST}x",
        f"{MANIFEST}.x.{'0' * 16}.1",
        f"{EXCHANGE}/x",
        EXCHANGE.rpartition(".")[0],
        "write-check",
        f"{KEY}.",
        f"{KEY}.x",
        f"{UPLOAD}/x",
        f"{UPLOAD}.x",
        f"{KEY}.{CONVERSATION}",
    ],
)
def test_nothing_else_is_a_key(text: str) -> None:
    assert not is_key(text)
    with pytest.raises(Invalid):
        check_key(text)


def test_a_key_names_its_bytes_and_a_manifest_any() -> None:
    check_bytes(KEY, b"abc")
    check_bytes(UPLOAD, b"abc")
    check_bytes(MANIFEST, b"whatever")
    check_bytes(EXCHANGE, b"whatever")
    assert not is_genuine(KEY, hashlib.sha256(b"abd").hexdigest())
    with pytest.raises(Invalid):
        check_bytes(KEY, b"abd")
    with pytest.raises(Invalid):
        check_bytes(UPLOAD, b"abd")


async def test_a_right_stream_comes_as_it_is() -> None:
    assert [chunk async for chunk in hold_back(KEY, stream(b"a", b"b", b"c"))] == [b"a", b"b", b"c"]


@pytest.mark.parametrize("chunks", [(b"a", b"b", b"x"), (b"a", b"b"), (b"a", b"b", b"c", b"d"), ()])
async def test_a_wrong_stream_never_ends_as_if_it_were_right(chunks: tuple[bytes, ...]) -> None:
    came: list[bytes] = []

    with pytest.raises(AlteredObject):
        async for chunk in hold_back(KEY, stream(*chunks)):
            came.append(chunk)

    assert came == list(chunks[:-1])
