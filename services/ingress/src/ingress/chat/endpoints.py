"""Sending messages and signals to a conversation."""

from typing import Annotated, Any, cast

from fastapi import APIRouter, Depends, Path, Request

from everturn.core.identity import Principal
from everturn.core.ids import ConversationId
from everturn.events.turn_view import build_signal_view
from everturn.timeline.turns import Signal
from everturn.turns.inbox import Receipt
from ingress.admission.idempotency import HEADER
from ingress.admission.route import AdmittedRequest, AdmittedRoute, SubmitRoute
from ingress.auth.gate import Me
from ingress.chat.schemas import (
    APPROVAL_EXAMPLE,
    AcceptedOut,
    MessageIn,
    ReceiptOut,
    SignalIn,
    SignalOut,
    SignalPatch,
    SubmissionCaps,
    build_caps,
    check_text,
    read_submission,
)
from ingress.chat.service import ChatService, chat_service
from ingress.fields import ConversationPath, SignalPath
from ingress.openapi.responses import problems

router = APIRouter(prefix="/conversations/{tenant}/{project}", route_class=SubmitRoute, tags=["chat"])
Service = Annotated[ChatService, Depends(chat_service)]

PREFIX = "/conversations/{tenant}/{project}/{conversation_id}/signals"
submit_router = APIRouter(prefix=PREFIX, route_class=SubmitRoute, tags=["signals"])
signal_router = APIRouter(prefix=PREFIX, route_class=AdmittedRoute, tags=["signals"])


async def load_caps(request: Request) -> SubmissionCaps:
    """The submission caps of this application."""
    return build_caps(request.app.state.settings, request.app.state.bounds)


Caps = Annotated[SubmissionCaps, Depends(load_caps)]


def describe_submission(form: type[MessageIn] | type[SignalIn], **examples: dict[str, Any]) -> dict[str, Any]:
    """The OpenAPI request body of an endpoint that reads JSON and multipart itself, with named examples."""
    schema = form.model_json_schema(ref_template="#/components/schemas/{model}")
    schema.pop("$defs", None)
    files = {
        "type": "array",
        "items": {"type": "string", "contentMediaType": "application/octet-stream"},
    }
    parts = {"type": "object", "required": ["message"], "properties": {"message": schema, "files": files}}
    content = {
        "application/json": {
            "schema": schema,
            "examples": {name: {"value": example} for name, example in examples.items()},
        },
        "multipart/form-data": {"schema": parts, "encoding": {"message": {"contentType": "application/json"}}},
    }
    key = {
        "name": HEADER,
        "in": "header",
        "required": False,
        "description": "A repeated request with the same key gets the first response again; another body gets a 422.",
        "schema": {"type": "string", "minLength": 1, "maxLength": 200, "pattern": "^[!-~]+$"},
    }
    return {"requestBody": {"required": True, "content": content}, "parameters": [key]}


@router.post(
    "/{conversation_id}/messages",
    status_code=202,
    responses=problems(408, 409, 413, 415, 429),
    openapi_extra=describe_submission(MessageIn, question={"text": "What is the total by region?"}),
)
async def post_message(
    request: Request,
    me: Me,
    service: Service,
    caps: Caps,
    conversation_id: Annotated[str, Path(description="A conversation's id, or `new` to begin one.", examples=["new"])],
) -> AcceptedOut:
    """Accept a message: it becomes a turn, or a followup to the running one. The answer is streamed at `events_url`."""
    submission = await read_submission(cast(AdmittedRequest, request), MessageIn, caps)
    return build_accepted(me, await service.accept_message(me, conversation_id, submission, request.headers))


def build_accepted(principal: Principal, receipt: Receipt) -> AcceptedOut:
    """The 202 body of a receipt."""
    conversation = receipt.conversation_id
    return AcceptedOut(
        conversation_id=conversation,
        turn_id=receipt.turn_id,
        signal_id=receipt.signal_id,
        receipt=_build_receipt(receipt),
        events_url=f"/conversations/{principal.tenant}/{principal.project}/{conversation}/events",
    )


def _build_receipt(receipt: Receipt) -> ReceiptOut:
    state, position = receipt.state.value if receipt.state and receipt.turn_id else "queued", receipt.position
    return ReceiptOut(
        state=state,
        position=position.ahead if position else None,
        position_more=(position.more or None) if position else None,
        file_notices=receipt.file_notices or None,
    )


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

    An idle conversation accepts only events; other signals get a 409, as do an approval already answered differently
    and an `approve` for a question with a `connect_url`, which is answered by connecting an account there.
    """
    submission = await read_submission(cast(AdmittedRequest, request), SignalIn, caps)
    return build_accepted(me, await service.accept_signal(me, conversation_id, submission, request.headers))


@signal_router.get("/{signal_id}", responses=problems())
async def get_signal(me: Me, service: Service, conversation_id: ConversationPath, signal_id: SignalPath) -> SignalOut:
    """A signal with its receipt."""
    return _build_signal(me, conversation_id, await service.load_signal(me, conversation_id, signal_id))


@signal_router.patch("/{signal_id}", responses=problems(408, 409, 413, 415))
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


@signal_router.delete("/{signal_id}", responses=problems(409))
async def delete_signal(
    me: Me, service: Service, conversation_id: ConversationPath, signal_id: SignalPath
) -> SignalOut:
    """Retract a signal that has not been applied yet."""
    return _build_signal(me, conversation_id, await service.retract_signal(me, conversation_id, signal_id))


def _build_signal(principal: Principal, conversation_id: ConversationId, signal: Signal) -> SignalOut:
    view = build_signal_view(signal, tenant=principal.tenant, project=principal.project)
    return SignalOut(conversation_id=conversation_id, turn_id=signal.turn_id, signal=view)
