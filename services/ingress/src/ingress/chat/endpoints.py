"""Sending messages to a conversation."""

from typing import Annotated, Any, cast

from fastapi import APIRouter, Depends, Path, Request

from everturn.model.identity import Principal
from everturn.ports.inbox import Receipt
from ingress.admission.idempotency import HEADER
from ingress.admission.request import AdmittedRequest
from ingress.admission.responses import problems
from ingress.admission.route import SubmitRoute
from ingress.auth.gate import Me
from ingress.chat.schemas import AcceptedOut, MessageIn, ReceiptOut, SignalIn
from ingress.chat.service import ChatService, chat_service
from ingress.chat.submission import SubmissionCaps, build_caps, read_submission

router = APIRouter(prefix="/conversations/{tenant}/{project}", route_class=SubmitRoute, tags=["chat"])
Service = Annotated[ChatService, Depends(chat_service)]


def load_caps(request: Request) -> SubmissionCaps:
    """The caps of this application."""
    return build_caps(request.app.state.settings)


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


def add_file_cap(document: dict[str, Any], max_files: int) -> None:
    """Say in an OpenAPI document how many files a submission may have, which is a setting."""
    for path in document["paths"].values():
        for operation in path.values():
            multipart = operation.get("requestBody", {}).get("content", {}).get("multipart/form-data")
            if multipart is not None:
                multipart["schema"]["properties"]["files"]["maxItems"] = max_files


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
