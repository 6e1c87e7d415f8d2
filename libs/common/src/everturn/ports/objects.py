"""Objects: bytes by key. Rows name them; the store knows nothing of tenants."""

from collections.abc import AsyncGenerator, Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from everturn.errors import Invalid, Unavailable
from everturn.model.ids import ConversationId

CHUNK_BYTES = 256 * 1024
MAX_OBJECTS = 1_000
"""Objects that one page lists at most."""


class AlteredObject(Unavailable):
    """A stored object is not what was stored."""


@dataclass(frozen=True, slots=True)
class StoredObject:
    """What a listing says of an object; `size` in bytes, `modified_at` with its time zone."""

    key: str
    size: int
    modified_at: datetime


@dataclass(frozen=True, slots=True)
class ObjectPage:
    """Objects in order of their keys, and where to go on. A page may be empty and not the last."""

    objects: tuple[StoredObject, ...]
    next_cursor: str | None


class Objects(Protocol):
    """Keys are `<conversation>/<sha256>`, `<conversation>/<sha256>.<artifact>` for an object of one upload alone, and
    `<conversation>/manifests/<turn>.<round>` for what may be written anew.

    Writing the same key again is fine. Raises NotFound or Unavailable, and Invalid for a key of another form.
    What is read whole is checked against the hash in its key, where it has one: AlteredObject.
    """

    @property
    def kind(self) -> str:
        """What store it is, in a word or two."""
        ...

    async def save(self, key: str, data: bytes) -> None: ...

    async def load(self, key: str, *, max_bytes: int) -> bytes:
        """The whole object; raises Invalid when it is larger."""
        ...

    def load_stream(self, key: str) -> AsyncGenerator[bytes]:
        """The whole object in chunks of at most 256 KiB.

        The last chunk comes when the hash of all is known to be right; AlteredObject is raised instead of it.
        """
        ...

    def load_range(self, key: str, *, start: int, end: int) -> AsyncGenerator[bytes]:
        """Bytes `start` up to but not `end`, in chunks of at most 256 KiB; what lies behind the end is left out.

        A part has no hash: a store that can't read the whole of it cheaply gives what it has, unchecked.
        """
        ...

    async def load_page(self, prefix: str = "", *, cursor: str | None = None, limit: int = MAX_OBJECTS) -> ObjectPage:
        """Objects whose keys begin with `prefix`, by key; `cursor` is that of the page before.

        Raises Invalid unless `limit` is 1 to MAX_OBJECTS.
        """
        ...

    async def try_presign(self, key: str, *, content_type: str, disposition: str, lifetime_s: int) -> str | None:
        """A URL by which anybody may read the object for so long, with these two headers; None from stores without.

        The object need not exist, and nobody checks its hash.
        """
        ...

    async def delete(self, keys: Sequence[str]) -> int:
        """Remove objects; missing ones are fine. Returns how many there were."""
        ...

    async def delete_conversation(self, conversation_id: ConversationId, *, keep: Collection[str] = ()) -> int:
        """Remove all objects of a conversation, also those that no row names, but not `keep`. Returns how many."""
        ...

    async def check(self) -> None:
        """Raise Unavailable when the store can't be written."""
        ...


def check_limit(limit: int) -> None:
    """Raise Invalid unless so many objects may be listed at once."""
    if not 0 < limit <= MAX_OBJECTS:
        raise Invalid(f"1 to {MAX_OBJECTS} objects are listed at once.")
