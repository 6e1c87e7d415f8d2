"""What is remembered of the caller for good, beyond any conversation."""

from typing import Annotated

from fastapi import APIRouter, Depends, Path, Query

from ingress.admission.json_body import Cursor
from ingress.admission.responses import problems
from ingress.admission.route import AdmittedRoute
from ingress.auth.gate import Me
from ingress.memory.schemas import ID_EXAMPLE, ForgottenOut, MemoryList
from ingress.memory.service import MemoryService, memory_service

router = APIRouter(prefix="/memory/{tenant}/{project}", route_class=AdmittedRoute, tags=["memory"])
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
