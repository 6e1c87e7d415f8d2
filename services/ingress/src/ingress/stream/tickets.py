"""Asking for a ticket, which opens one event stream for clients that can send no header."""

from datetime import UTC, datetime
from typing import cast

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, ConfigDict

from everturn.ports.clock import iso
from ingress.admission.paths import ConversationPath
from ingress.admission.responses import problems
from ingress.admission.route import AdmittedRoute
from ingress.auth.gate import AuthGate, CallerOf
from ingress.stream.sse import StreamEdge

router = APIRouter(prefix="/conversations/{tenant}/{project}", route_class=AdmittedRoute, tags=["events"])


class TicketOut(BaseModel):
    """`ticket` opens the conversation's events as `?ticket=`, until `expires_at` (UTC, RFC 3339)."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    ticket: str
    expires_at: str


@router.post("/{conversation_id}/ticket", responses=problems())
async def create_ticket(
    request: Request, response: Response, caller: CallerOf, conversation_id: ConversationPath
) -> TicketOut:
    """A ticket for this conversation's events. It opens and reopens the stream for 5 minutes, and does nothing else."""
    edge = cast(StreamEdge, request.app.state.streams)
    await edge.hub.rows.check_owner(caller.principal, conversation_id)
    ticket = cast(AuthGate, request.app.state.auth).build_ticket(caller, conversation_id)
    response.headers["Cache-Control"] = "no-store"
    return TicketOut(ticket=ticket.text, expires_at=iso(datetime.fromtimestamp(ticket.expires_at, UTC)))
