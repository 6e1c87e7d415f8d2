"""What the memory endpoints do: list what is remembered of a person, and forget it at the person's wish."""

import re
from typing import cast

from fastapi import Request

from everturn.errors import NotFound
from everturn.model.identity import Principal
from everturn.model.memory.user_memories import UserMemory
from everturn.ports.memory.user_memories import MemoryBook, MemoryPosition
from everturn.wire.cursors import BadCursor, build_cursor, read_cursor, read_moment
from everturn.wire.times import iso
from ingress.memory.schemas import MemoryList, MemoryOut

_CURSOR = "memory"
_ID = re.compile(r"mem_[0-9a-f]{20}", re.ASCII)


class MemoryService:
    """Every call is about the caller's own memories."""

    def __init__(self, book: MemoryBook) -> None:
        self._book = book

    async def load_page(self, principal: Principal, *, limit: int, cursor: str | None) -> MemoryList:
        """One page; raises BadCursor."""
        after = None if cursor is None else _read_position(cursor)
        found = await self._book.load_page(principal, limit=limit + 1, after=after)
        page = found[:limit]
        more = len(found) > limit
        return MemoryList(items=tuple(map(_build_view, page)), next_cursor=_build_cursor(page[-1]) if more else None)

    async def forget(self, principal: Principal, memory_id: str) -> int:
        """Raises NotFound when there is none with this id."""
        if not _ID.fullmatch(memory_id) or not await self._book.erase(principal, memory_id):
            raise NotFound()
        return 1

    async def forget_all(self, principal: Principal) -> int:
        """How many there were."""
        return await self._book.erase_all(principal)


def memory_service(request: Request) -> MemoryService:
    """The service of this application."""
    return cast(MemoryService, request.app.state.memory)


def _build_cursor(last: UserMemory) -> str:
    return build_cursor(_CURSOR, last.updated_at.isoformat(), last.id)


def _read_position(cursor: str) -> MemoryPosition:
    moment, memory_id = read_cursor(cursor, _CURSOR, parts=2)
    if not _ID.fullmatch(memory_id):
        raise BadCursor()
    return MemoryPosition(read_moment(moment), memory_id)


def _build_view(memory: UserMemory) -> MemoryOut:
    return MemoryOut(
        memory_id=memory.id,
        text=memory.text,
        labels=memory.labels,
        pinned=memory.pinned,
        confidence=memory.confidence,
        salience=memory.salience,
        created_at=iso(memory.created_at),
        updated_at=iso(memory.updated_at),
    )
