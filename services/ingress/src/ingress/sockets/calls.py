"""The calls that clients can make over a socket: each does the same as its REST endpoint, through the same services."""

import asyncio
from collections.abc import Awaitable, Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from typing import Any, TypeVar, cast

from pydantic import BaseModel, ValidationError
from starlette.datastructures import Headers
from starlette.types import Scope
from structlog.contextvars import bound_contextvars

from everturn.core.identity import Principal
from everturn.core.ids import is_id
from everturn.core.tracing import Span, SpanPlace, Tracing
from ingress.admission.edge import try_caller
from ingress.admission.fields import load_conversation_id
from ingress.admission.idempotency import HEADER
from ingress.admission.responses import problem_of_validation
from ingress.attachments.intake import IncomingFile, read_declared
from ingress.auth.gate import Caller
from ingress.chat.endpoints import build_accepted
from ingress.chat.schemas import AcceptedOut, MessageIn, SignalIn
from ingress.chat.service import ChatService
from ingress.chat.submission import Form, Submission, SubmissionCaps, check_submission
from ingress.conversations.service import ConversationService
from ingress.errors import unprocessable
from ingress.sockets.schemas import FileIn, SubmitIn, TargetIn, drop_fields

Checked = TypeVar("Checked", bound=BaseModel)
Payload = dict[str, Any]
Answer = tuple[int, BaseModel]
RunCall = Callable[[Caller, Payload], Awaitable[Answer]]


@dataclass(frozen=True, slots=True)
class ChatCalls:
    """The calls that don't depend on their socket."""

    chat: ChatService
    conversations: ConversationService
    caps: SubmissionCaps

    def table(self) -> Mapping[str, RunCall]:
        """The calls by event name."""
        return {
            "chat_message": self.send_message,
            "chat_signal": self.send_signal,
            "conv_status.get": self.load_status,
        }

    async def send_message(self, caller: Caller, payload: Payload) -> Answer:
        """Like POST .../messages."""
        me, envelope = caller.principal, check_form(SubmitIn, payload)
        submission = await self._read(payload, envelope, MessageIn)
        key = build_headers(envelope.idempotency_key)
        receipt = await self.chat.accept_message(me, envelope.conversation_id, submission, key)
        return _accepted(me, receipt)

    async def send_signal(self, caller: Caller, payload: Payload) -> Answer:
        """Like POST .../signals."""
        me, envelope = caller.principal, check_form(SubmitIn, payload)
        submission = await self._read(payload, envelope, SignalIn)
        conversation_id = load_conversation_id(envelope.conversation_id)
        key = build_headers(envelope.idempotency_key)
        receipt = await self.chat.accept_signal(me, conversation_id, submission, key)
        return _accepted(me, receipt)

    async def load_status(self, caller: Caller, payload: Payload) -> Answer:
        """Like GET .../{conversation_id}."""
        conversation_id = load_conversation_id(check_form(TargetIn, payload).conversation_id)
        return 200, await self.conversations.load(caller.principal, conversation_id)

    async def _read(self, payload: Payload, envelope: SubmitIn, form: type[Form]) -> Submission[Form]:
        fields = drop_fields(payload, SubmitIn)
        check_no_bytes(fields)
        files = await asyncio.to_thread(lambda: tuple(map(_build_file, count(), envelope.files)))
        return await check_submission(fields, files, form, self.caps)


def check_form(form: type[Checked], payload: Payload) -> Checked:
    """The payload as a form. Raises a 422 problem that names the field."""
    try:
        return form.model_validate(payload)
    except ValidationError as error:
        raise problem_of_validation(error.errors(), "body") from error


def check_no_bytes(value: object, place: str = "body") -> None:
    """Reject attachments anywhere but in `files` (422)."""
    match value:
        case bytes():
            raise unprocessable(f"{place} is binary; only files[].data may be binary.")
        case dict():
            for key, item in cast(dict[str, object], value).items():
                check_no_bytes(item, f"{place}.{key[:60]}")
        case list():
            for index, item in enumerate(cast(list[object], value)):
                check_no_bytes(item, f"{place}.{index}")
        case _:
            return


def build_headers(idempotency_key: str | None) -> Headers:
    """The headers of a REST request with this key; the REST check rejects what can't be in a header."""
    if idempotency_key is None:
        return Headers()
    return Headers(raw=[(HEADER.encode(), idempotency_key.encode())])


def _build_file(index: int, file: FileIn) -> IncomingFile:
    return IncomingFile(file.filename, read_declared(file.mime), file.data, f"body.files.{index}")


def _accepted(principal: Principal, receipt: Any) -> tuple[int, AcceptedOut]:
    return 202, build_accepted(principal, receipt)


# Calls over a socket in traces and logs: a span per call, and the fields of its log lines.

_SERVER_ERROR = 500


@contextmanager
def open_call_span(
    tracing: Tracing, name: str, handshake: Scope, *, tenant: str, payload: tuple[object, ...]
) -> Generator[Span]:
    """Open the span of a call, following the RPC conventions. `name` is one of the known calls.

    A socket lives for hours, so each call is a trace of its own, linked to the span that the handshake named.
    """
    attributes = {"rpc.system.name": "socketio", "rpc.method": name}
    place = SpanPlace(link=try_caller(handshake))
    with tracing.span(name, attributes, kind="server", place=place) as span:
        trace = tracing.current()
        names = {"trace_id": trace.trace_id} if trace else {}
        # Terminals interpret control characters.
        if tenant.isprintable() and tenant:
            names["tenant"] = tenant
        with bound_contextvars(**names, **_find_conversation(payload)):
            yield span


def tell_status(span: Span, status: int) -> None:
    """Record the status that REST would return."""
    span.note({"rpc.response.status_code": str(status)})
    if status >= _SERVER_ERROR:
        span.fail(str(status))


def _find_conversation(payload: tuple[object, ...]) -> dict[str, str]:
    """The requested conversation, allowed or not; `new` has none yet."""
    match payload:
        case ({"conversation_id": str(asked)},) if is_id(asked, "conv"):
            return {"conversation_id": asked}
        case _:
            return {}
