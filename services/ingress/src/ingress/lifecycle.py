"""Export and fork of a conversation."""

from collections.abc import AsyncGenerator
from functools import partial
from typing import Annotated, cast

import structlog
from fastapi import APIRouter, Depends, Request
from pydantic import Field
from starlette.datastructures import Headers

from everturn.core.clock import Clock
from everturn.core.errors import EverturnError, NotFound
from everturn.core.identity import Principal
from everturn.core.ids import ConversationId, Ids, TurnId, is_id
from everturn.lifecycle.export_check import ExportWriter
from everturn.lifecycle.exports import BlockLine, BrokenLine, Exports, HeaderLine, Section
from everturn.lifecycle.forks import Fork, ForkRequest, Forks
from ingress.admission.idempotency import HEADER, build_key, wait_for_concurrent_request
from ingress.admission.route import AdmittedRoute
from ingress.admission.slots import HeldResponse, OpenSlots, download_slots
from ingress.auth.gate import Me
from ingress.errors import absent
from ingress.fields import ConversationPath, JsonBody, Line
from ingress.openapi.responses import problems

_log = structlog.get_logger(__name__)

TURN_EXAMPLE = "turn_01890a5d-ac96-774b-bcce-b302099a8057"

JSON_LINES = "application/jsonl"
router = APIRouter(
    prefix="/conversations/{tenant}/{project}/{conversation_id}", route_class=AdmittedRoute, tags=["conversations"]
)

_KEY = {
    "name": HEADER,
    "in": "header",
    "required": False,
    "description": "A repeated request with the same key gets the same fork again; another body gets a 422.",
    "schema": {"type": "string", "minLength": 1, "maxLength": 200, "pattern": "^[!-~]+$"},
}


class ExportService:
    """Renders exports; holds one page of a conversation in memory at a time."""

    def __init__(self, exports: Exports) -> None:
        self._exports = exports

    async def load_header(self, principal: Principal, conversation_id: ConversationId) -> HeaderLine:
        """The first line of the export. Raises NotFound."""
        return await self._exports.load_header(principal, conversation_id)

    async def render(self, principal: Principal, header: HeaderLine) -> AsyncGenerator[bytes]:
        """Yield the file in pieces. If a read fails, the last line says so, because the status has already been
        sent."""
        writer = ExportWriter()
        yield writer.render(header)
        try:
            async for piece in self._render_rows(principal, header, writer):
                yield piece
        except _Erased as erased:
            yield writer.render(BrokenLine(detail=str(erased)))
            return
        except EverturnError as error:
            _log.warning("An export stopped before its end", conversation_id=header.conversation_id, error=str(error))
            yield writer.render(BrokenLine(detail="The rows could not be read. Try again."))
            return
        yield writer.render_end()

    async def _render_rows(
        self, principal: Principal, header: HeaderLine, writer: ExportWriter
    ) -> AsyncGenerator[bytes]:
        conversation_id = ConversationId(header.conversation_id)
        last: BlockLine | None = None
        while (last.seq if last else 0) < header.blocks:
            page = await self._exports.load_blocks(principal, conversation_id, after=last, last_seq=header.blocks)
            if not page:
                raise _Erased()
            yield b"".join(writer.render(line) for line in page)
            last = page[-1]
        for section in Section:
            after = ""
            while (rows := await self._exports.load_page(principal, conversation_id, section, after=after)).lines:
                yield b"".join(writer.render(line) for line in rows.lines)
                after = rows.after
        # Pages of an erased conversation are empty, like those after the last row.
        try:
            await self._exports.load_header(principal, conversation_id)
        except NotFound as error:
            raise _Erased() from error


class _Erased(EverturnError):
    """The conversation was erased while it was exported."""


class ForkIn(JsonBody):
    """The last turn to copy (default: the last one that has ended), and the title (default: the original's)."""

    turn_id: str | None = Field(default=None, max_length=80, examples=[TURN_EXAMPLE])
    title: Line | None = Field(default=None, examples=["Another way"])
    """The title of the copy; without it, the original's."""


class ForkOut(JsonBody):
    """The new conversation and its origin: `turn_id` is the last turn of the original that was copied."""

    conversation_id: str
    forked_from: str
    """The conversation that was copied."""
    turn_id: str
    turns: int
    """How many turns were copied."""
    blocks: int
    """How many blocks were copied."""


class ForkService:
    """Implements the fork endpoint."""

    def __init__(self, forks: Forks, ids: Ids, clock: Clock) -> None:
        self._forks = forks
        self._ids = ids
        self._clock = clock

    async def fork(self, principal: Principal, source_id: ConversationId, body: ForkIn, headers: Headers) -> Fork:
        """Copy a conversation; the same key and body return the same fork."""
        if body.turn_id is not None and not is_id(body.turn_id, "turn"):
            raise absent()
        route = f"POST /conversations/{principal.tenant}/{principal.project}/{source_id}/fork"
        key = build_key(headers, route=route, content=body.model_dump())
        wish = ForkRequest(self._ids.conversation(), TurnId(body.turn_id) if body.turn_id else None, body.title)
        return await wait_for_concurrent_request(
            partial(self._forks.fork, principal, source_id, wish, key), self._clock
        )


async def export_service(request: Request) -> ExportService:
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
    """Blocks with their hash chain, artifacts without contents, signals and feedback; `python -m ingress verify-export`
    checks the file. A file without its end line is incomplete."""
    headers = {"Content-Disposition": f'attachment; filename="{conversation_id}.jsonl"', "Cache-Control": "no-store"}
    with slots.until_handed_over(me):
        lines = service.render(me, await service.load_header(me, conversation_id))
        return HeldResponse(lines, slots=slots, principal=me, media_type=JSON_LINES, headers=headers)


async def fork_service(request: Request) -> ForkService:
    """The service of this application."""
    return cast(ForkService, request.app.state.forks)


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
