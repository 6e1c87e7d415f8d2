"""Signals: what is said to a running turn, and its receipt."""

from typing import cast

from fastapi import APIRouter, Request

from everturn.model.identity import Principal
from everturn.model.ids import ConversationId
from everturn.model.signals import Signal
from everturn.timeline.view_parts import build_signal_view
from ingress.admission.paths import ConversationPath, SignalPath
from ingress.admission.request import AdmittedRequest
from ingress.admission.responses import problems
from ingress.admission.route import AdmittedRoute, SubmitRoute
from ingress.auth.gate import Me
from ingress.chat.endpoints import Caps, Service, build_accepted, describe_submission
from ingress.chat.schemas import APPROVAL_EXAMPLE, AcceptedOut, SignalIn, SignalOut, SignalPatch
from ingress.chat.submission import check_text, read_submission

PREFIX = "/conversations/{tenant}/{project}/{conversation_id}/signals"
submit_router = APIRouter(prefix=PREFIX, route_class=SubmitRoute, tags=["signals"])
router = APIRouter(prefix=PREFIX, route_class=AdmittedRoute, tags=["signals"])


@submit_router.post(
    "",
    status_code=202,
    responses=problems(408, 409, 413, 415, 429),
    openapi_extra=describe_submission(
        SignalIn,
        steer={"kind": "steer", "text": "Only the north, please."},
        approve={"kind": "approve", "approval_id": APPROVAL_EXAMPLE},
        deny={"kind": "deny", "approval_id": APPROVAL_EXAMPLE, "text": "Not to that address."},
    ),
)
async def post_signal(
    request: Request, me: Me, service: Service, caps: Caps, conversation_id: ConversationPath
) -> AcceptedOut:
    """Send a followup, steer, cancel or event to the running turn, or answer an approval that it waits for.

    An idle conversation accepts only events; other signals get a 409, as does an approval already answered differently.
    """
    submission = await read_submission(cast(AdmittedRequest, request), SignalIn, caps)
    return build_accepted(me, await service.accept_signal(me, conversation_id, submission, request.headers))


@router.get("/{signal_id}", responses=problems())
async def get_signal(me: Me, service: Service, conversation_id: ConversationPath, signal_id: SignalPath) -> SignalOut:
    """A signal with its receipt."""
    return _build_signal(me, conversation_id, await service.load_signal(me, conversation_id, signal_id))


@router.patch("/{signal_id}", responses=problems(408, 409, 413, 415))
async def patch_signal(
    *,
    patch: SignalPatch,
    me: Me,
    service: Service,
    caps: Caps,
    conversation_id: ConversationPath,
    signal_id: SignalPath,
) -> SignalOut:
    """Change the text of a signal that has not been applied yet."""
    check_text(patch.text, caps)
    return _build_signal(me, conversation_id, await service.edit_signal(me, conversation_id, signal_id, patch.text))


@router.delete("/{signal_id}", responses=problems(409))
async def delete_signal(
    me: Me, service: Service, conversation_id: ConversationPath, signal_id: SignalPath
) -> SignalOut:
    """Retract a signal that has not been applied yet."""
    return _build_signal(me, conversation_id, await service.retract_signal(me, conversation_id, signal_id))


def _build_signal(principal: Principal, conversation_id: ConversationId, signal: Signal) -> SignalOut:
    view = build_signal_view(signal, tenant=principal.tenant, project=principal.project)
    return SignalOut(conversation_id=conversation_id, turn_id=signal.turn_id, signal=view)
