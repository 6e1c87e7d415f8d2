"""What becomes of a conversation beyond its turns: export."""

from typing import Annotated, cast

from fastapi import APIRouter, Depends, Request
from fastapi.responses import StreamingResponse

from ingress.admission.paths import ConversationPath
from ingress.admission.responses import problems
from ingress.admission.route import AdmittedRoute
from ingress.auth.gate import Me
from ingress.life.exporting import ExportService

JSON_LINES = "application/jsonl"
router = APIRouter(
    prefix="/conversations/{tenant}/{project}/{conversation_id}", route_class=AdmittedRoute, tags=["conversations"]
)


def export_service(request: Request) -> ExportService:
    """The service of this application."""
    return cast(ExportService, request.app.state.exports)


@router.get(
    "/export",
    response_class=StreamingResponse,
    responses={
        **problems(),
        200: {
            "description": "The conversation, a JSON value a line.",
            "content": {JSON_LINES: {"schema": {"type": "string"}}},
        },
    },
)
async def export_conversation(
    me: Me, service: Annotated[ExportService, Depends(export_service)], conversation_id: ConversationPath
) -> StreamingResponse:
    """Blocks with their hash chain, artifacts without bytes, signals and feedback; `python -m ingress verify-export`
    checks the file. A file without its end line is not whole."""
    header = await service.load_header(me, conversation_id)
    return StreamingResponse(
        service.render(me, header),
        media_type=JSON_LINES,
        headers={"Content-Disposition": f'attachment; filename="{conversation_id}.jsonl"', "Cache-Control": "no-store"},
    )
