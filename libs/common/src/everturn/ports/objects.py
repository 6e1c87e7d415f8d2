"""Objects: bytes by key. Rows name them; the store knows nothing of tenants."""

from collections.abc import AsyncGenerator, Sequence
from typing import Protocol

from everturn.model.ids import ConversationId


class Objects(Protocol):
    """Keys are `<conversation>/<sha256>`, and `<conversation>/manifests/<turn>.<round>` for what may be written anew.

    Writing the same key again is fine. Raises NotFound or Unavailable, and Invalid for a key of another form.
    """

    async def save(self, key: str, data: bytes) -> None: ...

    async def load(self, key: str, *, max_bytes: int) -> bytes:
        """The whole object; raises Invalid when it is larger."""
        ...

    def load_range(self, key: str, *, start: int, end: int) -> AsyncGenerator[bytes]:
        """Bytes `start` up to but not `end`, in chunks of at most 256 KiB."""
        ...

    async def delete(self, keys: Sequence[str]) -> int:
        """Remove objects; missing ones are fine. Returns how many there were."""
        ...

    async def delete_conversation(self, conversation_id: ConversationId) -> int:
        """Remove all objects of a conversation, also those that no row names. Returns how many there were."""
        ...

    async def check(self) -> None:
        """Raise Unavailable when the store can't be written."""
        ...
