"""Objects in memory."""

from collections.abc import AsyncGenerator, Sequence

from everturn.errors import Invalid, NotFound, Unavailable
from everturn.model.ids import ConversationId

CHUNK_BYTES = 256 * 1024


class MemoryObjects:
    """Implements Objects. `stored` is theirs to change and a test's to read; while `down` every call fails."""

    def __init__(self) -> None:
        self.down = False
        self.stored: dict[str, bytes] = {}

    async def save(self, key: str, data: bytes) -> None:
        await self.check()
        self.stored[key] = data

    async def load(self, key: str, *, max_bytes: int) -> bytes:
        await self.check()
        data = self._find(key)
        if len(data) > max_bytes:
            raise Invalid(f"{key} has {len(data)} bytes; at most {max_bytes} are read.")
        return data

    async def load_range(self, key: str, *, start: int, end: int) -> AsyncGenerator[bytes]:
        await self.check()
        data = self._find(key)[start:end]
        for offset in range(0, len(data), CHUNK_BYTES):
            yield data[offset : offset + CHUNK_BYTES]

    async def delete(self, keys: Sequence[str]) -> int:
        await self.check()
        return len([self.stored.pop(key) for key in keys if key in self.stored])

    async def delete_conversation(self, conversation_id: ConversationId) -> int:
        return await self.delete([key for key in self.stored if key.startswith(f"{conversation_id}/")])

    async def check(self) -> None:
        if self.down:
            raise Unavailable("The object store is down.")

    def _find(self, key: str) -> bytes:
        if key not in self.stored:
            raise NotFound(key)
        return self.stored[key]
