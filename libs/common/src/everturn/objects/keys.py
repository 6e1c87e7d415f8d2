"""What all drivers know of keys: which are ours, and which bytes one names."""

import hashlib
import re
from collections.abc import AsyncGenerator
from contextlib import aclosing

from everturn.errors import Invalid
from everturn.model.ids import is_id
from everturn.ports.objects import AlteredObject

MANIFESTS = "manifests"
_DIGEST = re.compile(r"[0-9a-f]{64}")
_NUMBER = re.compile(r"[0-9]{1,6}")


def is_key(text: str) -> bool:
    """Whether this is an object key of ours."""
    conversation, _, name = text.partition("/")
    return is_id(conversation, "conv") and (_is_content(name) or _is_manifest(name))


def check_key(key: str) -> None:
    """Raise Invalid unless it is a key of ours: nothing else may reach a file system or a bucket."""
    if not is_key(key):
        raise Invalid(f"{key!r} is no object key.")


def check_bytes(key: str, data: bytes) -> None:
    """Raise Invalid unless these bytes may be stored under the key."""
    if not is_genuine(key, hashlib.sha256(data).hexdigest()):
        raise Invalid(f"The bytes are not those that {key} names.")


def check_genuine(key: str, sha256: str) -> None:
    """Raise AlteredObject unless what was read has the hash that its key names."""
    if not is_genuine(key, sha256):
        raise AlteredObject(key)


def is_genuine(key: str, sha256: str) -> bool:
    """Manifests are named by their round: what they hold may change."""
    name = key.partition("/")[2]
    return _is_manifest(name) or name.partition(".")[0] == sha256


async def hold_back(key: str, chunks: AsyncGenerator[bytes]) -> AsyncGenerator[bytes]:
    """Pass the chunks of a whole object on, each when the next one has come, and the last when the hash is right.

    So a reader never gets all bytes of a wrong object. Raises AlteredObject.
    """
    digest, held = hashlib.sha256(), b""
    async with aclosing(chunks):
        async for chunk in chunks:
            digest.update(chunk)
            if held:
                yield held
            held = chunk
    check_genuine(key, digest.hexdigest())
    if held:
        yield held


def _is_content(name: str) -> bool:
    digest, dot, owner = name.partition(".")
    return _DIGEST.fullmatch(digest) is not None and (not dot or is_id(owner, "art"))


def _is_manifest(name: str) -> bool:
    folder, _, file = name.partition("/")
    turn_id, _, number = file.rpartition(".")
    return folder == MANIFESTS and is_id(turn_id, "turn") and _NUMBER.fullmatch(number) is not None
