"""Objects in memory."""

import hashlib
import re
from collections.abc import AsyncGenerator, Collection, Sequence
from datetime import UTC, datetime

from everturn.core.errors import Invalid, NotFound, Unavailable
from everturn.core.ids import ConversationId
from everturn.files.objects import (
    CHUNK_BYTES,
    MAX_OBJECTS,
    AlteredObject,
    ObjectPage,
    StoredObject,
    check_limit,
)

_KEY = re.compile(r"[\w.-]+(?:/[\w.-]+)*")


class MemoryObjects:
    """Implements Objects. Only the driver changes `stored`, tests can read it; while `down` every call fails.

    Ids in keys may be short ones of tests; other texts than keys are refused. All objects have the same `modified_at`.
    `signs` is the beginning of presigned URLs; empty for none.
    """

    @property
    def kind(self) -> str:
        return "memory"

    def __init__(self, *, signs: str = "") -> None:
        self.down = False
        self.stored: dict[str, bytes] = {}
        self.modified_at = datetime(2026, 1, 1, tzinfo=UTC)
        self._signs = signs

    async def save(self, key: str, data: bytes) -> None:
        _check_key(key)
        await self.check()
        self.stored[key] = data

    async def load(self, key: str, *, max_bytes: int) -> bytes:
        _check_key(key)
        await self.check()
        data = self._find(key)
        if len(data) > max_bytes:
            raise Invalid(f"{key} has {len(data)} bytes; at most {max_bytes} are read.")
        return _checked(key, data)

    async def load_stream(self, key: str) -> AsyncGenerator[bytes]:
        _check_key(key)
        await self.check()
        data = _checked(key, self._find(key))
        for offset in range(0, len(data), CHUNK_BYTES):
            yield data[offset : offset + CHUNK_BYTES]

    async def load_range(self, key: str, *, start: int, end: int) -> AsyncGenerator[bytes]:
        _check_key(key)
        await self.check()
        data = self._find(key)[start:end]
        for offset in range(0, len(data), CHUNK_BYTES):
            yield data[offset : offset + CHUNK_BYTES]

    async def load_page(self, prefix: str = "", *, cursor: str | None = None, limit: int = MAX_OBJECTS) -> ObjectPage:
        check_limit(limit)
        await self.check()
        keys = sorted(key for key in self.stored if key.startswith(prefix) and key > (cursor or ""))
        page = tuple(StoredObject(key, len(self.stored[key]), self.modified_at) for key in keys[:limit])
        return ObjectPage(page, page[-1].key if len(keys) > limit else None)

    async def try_presign(self, key: str, *, content_type: str, disposition: str, lifetime_s: int) -> str | None:
        _check_key(key)
        await self.check()
        return f"{self._signs}{key}?type={content_type}&as={disposition}&for={lifetime_s}" if self._signs else None

    async def delete(self, keys: Sequence[str]) -> int:
        for key in keys:
            _check_key(key)
        await self.check()
        return len([self.stored.pop(key) for key in keys if key in self.stored])

    async def delete_conversation(self, conversation_id: ConversationId, *, keep: Collection[str] = ()) -> int:
        own = [key for key in self.stored if key.startswith(f"{conversation_id}/")]
        return await self.delete([key for key in own if key not in keep])

    async def check(self) -> None:
        if self.down:
            raise Unavailable("The object store is down.")

    def _find(self, key: str) -> bytes:
        if key not in self.stored:
            raise NotFound(key)
        return self.stored[key]


def _check_key(key: str) -> None:
    """Raises Invalid for what can't be a key, such as a sentence or nothing."""
    if not _KEY.fullmatch(key):
        raise Invalid(f"{key!r} is not an object key.")


def _checked(key: str, data: bytes) -> bytes:
    """Manifests are named by their round, so only objects named by their hash can be found altered."""
    name = key.rpartition("/")[2]
    if "." not in name and name != hashlib.sha256(data).hexdigest():
        raise AlteredObject(key)
    return data
