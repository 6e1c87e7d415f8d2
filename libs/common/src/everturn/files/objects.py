"""Objects: bytes by key. Rows name them; the store has no notion of tenants."""

import hashlib
import re
from collections.abc import AsyncGenerator, Collection, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from everturn.core.errors import Invalid, Unavailable
from everturn.core.ids import ConversationId, is_id

CHUNK_BYTES = 256 * 1024
MAX_OBJECTS = 1_000
"""Objects in one page at most."""

MANIFESTS = "manifests"
_DIGEST = re.compile(r"[0-9a-f]{64}")
_NUMBER = re.compile(r"[0-9]{1,6}(?:\.[0-9a-f]{16})?|x\.[0-9a-f]{16}\.[0-9]{1,6}")


class AlteredObject(Unavailable):
    """A stored object failed its integrity check."""


@dataclass(frozen=True, slots=True)
class StoredObject:
    """An object in a listing; `size` in bytes, `modified_at` with its time zone."""

    key: str
    size: int
    modified_at: datetime


@dataclass(frozen=True, slots=True)
class ObjectPage:
    """Objects in order of their keys, and the next cursor. A page can be empty and not the last."""

    objects: tuple[StoredObject, ...]
    next_cursor: str | None


class Objects(Protocol):
    """Keys are `<conversation>/<sha256>`, `<conversation>/<sha256>.<artifact>` for an object of one upload alone, the
    same with a collection for an upload to it, and `<conversation>/manifests/<turn>.<round>`, with `.<hash>` or
    without, or `<turn>.x.<hash>.<number>`, for objects that can be overwritten.

    Writing the same key again is fine. Raises NotFound or Unavailable, and Invalid for a key of another form. An object
    that is read as a whole is checked against the hash in its key, if it has one: AlteredObject.
    """

    @property
    def kind(self) -> str:
        """The kind of store, in a word or two."""
        ...

    async def save(self, key: str, data: bytes) -> None: ...

    async def load(self, key: str, *, max_bytes: int) -> bytes:
        """The whole object; raises Invalid when it is larger."""
        ...

    def load_stream(self, key: str) -> AsyncGenerator[bytes]:
        """The whole object in chunks of at most 256 KiB.

        The last chunk is sent only after the hash of all was verified; otherwise AlteredObject is raised instead.
        """
        ...

    def load_range(self, key: str, *, start: int, end: int) -> AsyncGenerator[bytes]:
        """Bytes `start` up to but not `end`, in chunks of at most 256 KiB; stops at the end of the object.

        A part has no hash: a store that can't cheaply read the whole object returns the part unverified.
        """
        ...

    async def load_page(self, prefix: str = "", *, cursor: str | None = None, limit: int = MAX_OBJECTS) -> ObjectPage:
        """Objects whose keys begin with `prefix`, by key; `cursor` is that of the previous page.

        Raises Invalid unless `limit` is 1 to MAX_OBJECTS.
        """
        ...

    async def try_presign(self, key: str, *, content_type: str, disposition: str, lifetime_s: int) -> str | None:
        """A URL by which anyone can read the object for that long, with these headers; None from stores without URLs.

        The object need not exist, and its hash is not checked.
        """
        ...

    async def delete(self, keys: Sequence[str]) -> int:
        """Remove objects; missing ones are fine. Returns how many existed."""
        ...

    async def delete_conversation(self, conversation_id: ConversationId, *, keep: Collection[str] = ()) -> int:
        """Remove all objects of a conversation, also those that no row names, but not `keep`. Returns how many."""
        ...

    async def check(self) -> None:
        """Raise Unavailable when the store can't be written."""
        ...


def check_limit(limit: int) -> None:
    """Raise Invalid unless this many objects can be listed at once."""
    if not 0 < limit <= MAX_OBJECTS:
        raise Invalid(f"1 to {MAX_OBJECTS} objects are listed at once.")


def is_key(text: str) -> bool:
    """Whether this is a valid object key."""
    owner, _, name = text.partition("/")
    if is_id(owner, "coll"):
        return "." in name and _is_content(name)
    return is_id(owner, "conv") and (_is_content(name) or _is_manifest(name))


def check_key(key: str) -> None:
    """Raise Invalid unless it is a valid key: nothing else may reach a file system or a bucket."""
    if not is_key(key):
        raise Invalid(f"{key!r} is not an object key.")


def check_bytes(key: str, data: bytes) -> None:
    """Raise Invalid unless these bytes belong to the key."""
    if not is_genuine(key, hashlib.sha256(data).hexdigest()):
        raise Invalid(f"The bytes do not have the hash in {key}.")


def check_genuine(key: str, sha256: str) -> None:
    """Raise AlteredObject unless the data read has the hash in its key."""
    if not is_genuine(key, sha256):
        raise AlteredObject(key)


def is_genuine(key: str, sha256: str) -> bool:
    """Manifests are named by their round: their content can change."""
    name = key.partition("/")[2]
    return _is_manifest(name) or name.partition(".")[0] == sha256


async def hold_back(key: str, chunks: AsyncGenerator[bytes]) -> AsyncGenerator[bytes]:
    """Pass on the chunks of a whole object, each after the next one has arrived, and the last after the hash was
    verified.

    So a reader never gets all bytes of an altered object. Raises AlteredObject.
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
    turn_id, _, number = file.partition(".")
    return folder == MANIFESTS and is_id(turn_id, "turn") and _NUMBER.fullmatch(number) is not None
