"""What becomes of a conversation beyond its turns: export, fork."""

from typing import Annotated, cast

from fastapi import APIRouter, Depends, Request

from ingress.admission.idempotency import HEADER
from ingress.admission.paths import ConversationPath
from ingress.admission.responses import problems
from ingress.admission.route import AdmittedRoute
from ingress.admission.slots import HeldResponse, OpenSlots, download_slots
from ingress.auth.gate import Me
from ingress.life.exporting import ExportService
from ingress.life.forking import ForkService
from ingress.life.schemas import ForkIn, ForkOut

JSON_LINES = "application/jsonl"
router = APIRouter(
    prefix="/conversations/{tenant}/{project}/{conversation_id}", route_class=AdmittedRoute, tags=["conversations"]
)


def export_service(request: Request) -> ExportService:
    """The service of this application."""
    return cast(ExportService, request.app.state.exports)


@router.get(
    "/export",
    response_class=HeldResponse,
    responses={
        **problems(),
        200: {
            "description": "The conversation, one JSON value per line.",
            "content": {JSON_LINES: {"schema": {"type": "string"}}},
        },
    },
)
async def export_conversation(
    me: Me,
    service: Annotated[ExportService, Depends(export_service)],
    slots: Annotated[OpenSlots, Depends(download_slots)],
    conversation_id: ConversationPath,
) -> HeldResponse:
    """Blocks with their hash chain, artifacts without bytes, signals and feedback; `python -m ingress verify-export`
    checks the file. A file without its end line is incomplete."""
    headers = {"Content-Disposition": f'attachment; filename="{conversation_id}.jsonl"', "Cache-Control": "no-store"}
    with slots.until_handed_over(me):
        lines = service.render(me, await service.load_header(me, conversation_id))
        return HeldResponse(lines, slots=slots, principal=me, media_type=JSON_LINES, headers=headers)


def fork_service(request: Request) -> ForkService:
    """The service of this application."""
    return cast(ForkService, request.app.state.forks)


_KEY = {
    "name": HEADER,
    "in": "header",
    "required": False,
    "description": "A repeated request with the same key gets the same fork again; another body gets a 422.",
    "schema": {"type": "string", "minLength": 1, "maxLength": 200, "pattern": "^[!-~]+$"},
}


@router.post("/fork", status_code=201, responses=problems(408, 409, 413, 415), openapi_extra={"parameters": [_KEY]})
async def fork_conversation(
    *,
    request: Request,
    body: ForkIn,
    me: Me,
    service: Annotated[ForkService, Depends(fork_service)],
    conversation_id: ConversationPath,
) -> ForkOut:
    """A new conversation with everything up to the end of a turn. Files are shared, feedback is not copied."""
    fork = await service.fork(me, conversation_id, body, request.headers)
    return ForkOut(
        conversation_id=fork.conversation_id,
        forked_from=fork.source_id,
        turn_id=fork.turn_id,
        turns=fork.turns,
        blocks=fork.blocks,
    )
