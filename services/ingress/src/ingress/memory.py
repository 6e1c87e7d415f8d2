"""Permanent memories about the caller, independent of any conversation."""

import re
from typing import Annotated, cast

from fastapi import APIRouter, Depends, Path, Query, Request
from pydantic import Field

from everturn.core.clock import iso
from everturn.core.errors import NotFound
from everturn.core.identity import Principal
from everturn.core.paging import BadCursor, build_cursor, read_cursor, read_moment
from everturn.memory.user_memories import MemoryBook, MemoryPosition, UserMemory
from ingress.admission.route import AdmittedRoute
from ingress.auth.gate import Me
from ingress.fields import Cursor, JsonBody
from ingress.openapi.responses import problems

ID_EXAMPLE = "mem_0f1e2d3c4b5a69788796"

_CURSOR = "memory"
_ID = re.compile(r"mem_[0-9a-f]{20}", re.ASCII)

router = APIRouter(prefix="/memory/{tenant}/{project}", route_class=AdmittedRoute, tags=["memory"])


class MemoryOut(JsonBody):
    """One memory. `confidence` and `salience` are from 0 to 1; times are ISO 8601 in UTC."""

    memory_id: str = Field(examples=[ID_EXAMPLE])
    """The memory's id."""
    text: str = Field(examples=["Prefers metric units."])
    """What is remembered."""
    labels: tuple[str, ...] = Field(examples=[["preference"]])
    """The memory's labels."""
    pinned: bool = Field(examples=[False])
    """Whether it is always shown to the model."""
    confidence: float = Field(examples=[0.8])
    """How certain the memory is, from 0 to 1."""
    salience: float = Field(examples=[0.5])
    """How important it is, from 0 to 1."""
    created_at: str = Field(examples=["2026-03-01T12:00:00.000Z"])
    updated_at: str = Field(examples=["2026-03-01T12:00:00.000Z"])
    """When it was last changed, in ISO 8601 and UTC."""


class MemoryList(JsonBody):
    """One page, most recently changed first; `next_cursor` leads to the next page and is null at the end."""

    items: tuple[MemoryOut, ...]
    next_cursor: str | None = Field(examples=[None])


class ForgottenOut(JsonBody):
    """How many memories were forgotten."""

    forgotten: int = Field(examples=[1])
    """How many memories were deleted."""


class MemoryService:
    """Lists and forgets the caller's own memories."""

    def __init__(self, book: MemoryBook) -> None:
        self._book = book

    async def load_page(self, principal: Principal, *, limit: int, cursor: str | None) -> MemoryList:
        """One page. Raises BadCursor."""
        after = None if cursor is None else _read_position(cursor)
        found = await self._book.load_page(principal, limit=limit + 1, after=after)
        page = found[:limit]
        more = len(found) > limit
        return MemoryList(items=tuple(map(_build_view, page)), next_cursor=_build_cursor(page[-1]) if more else None)

    async def forget(self, principal: Principal, memory_id: str) -> int:
        """Forget one memory. Raises NotFound if it does not exist."""
        if not _ID.fullmatch(memory_id) or not await self._book.erase(principal, memory_id):
            raise NotFound()
        return 1

    async def forget_all(self, principal: Principal) -> int:
        """Forget all memories; returns their number."""
        return await self._book.erase_all(principal)


async def memory_service(request: Request) -> MemoryService:
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


Service = Annotated[MemoryService, Depends(memory_service)]


@router.get("", responses=problems())
async def list_memories(
    *,
    me: Me,
    service: Service,
    limit: Annotated[int, Query(ge=1, le=100, description="Maximum number of rows on a page.")] = 50,
    cursor: Annotated[Cursor | None, Query(description="The `next_cursor` of the previous page.")] = None,
) -> MemoryList:
    """The caller's memories, most recently changed first."""
    return await service.load_page(me, limit=limit, cursor=cursor)


@router.delete("", responses=problems())
async def forget_memories(me: Me, service: Service) -> ForgottenOut:
    """Forget everything. Turns that are running now can't write memories any more; later ones can."""
    return ForgottenOut(forgotten=await service.forget_all(me))


@router.delete("/{memory_id}", responses=problems())
async def forget_memory(
    me: Me, service: Service, memory_id: Annotated[str, Path(description="The memory's id.", examples=[ID_EXAMPLE])]
) -> ForgottenOut:
    """Forget one memory. Turns that are running now can't write it again."""
    return ForgottenOut(forgotten=await service.forget(me, memory_id))
