"""Searching the caller's conversations."""

from typing import Annotated

from fastapi import APIRouter, Depends

from ingress.admission.responses import problems
from ingress.admission.route import AdmittedRoute
from ingress.auth.gate import Me
from ingress.search.schemas import SearchIn, SearchOut
from ingress.search.service import SearchService, search_service

router = APIRouter(prefix="/conversations/{tenant}/{project}", route_class=AdmittedRoute, tags=["search"])


@router.post("/search", responses=problems(408, 410, 413, 415))
async def search_conversations(
    body: SearchIn, me: Me, service: Annotated[SearchService, Depends(search_service)]
) -> SearchOut:
    """Search the texts of the caller's ended turns, by meaning and by words, best hits first."""
    return await service.search(me, body)
