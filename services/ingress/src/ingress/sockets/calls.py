"""The calls that clients can make over a socket: each does the same as its REST endpoint, through the same services."""

from collections.abc import Awaitable, Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.datastructures import Headers
from starlette.types import Scope
from structlog.contextvars import bound_contextvars

from everturn.core.ids import is_id
from everturn.core.tracing import Span, SpanLinks, Tracing
from ingress.admission.edge import try_caller
from ingress.admission.idempotency import HEADER
from ingress.attachments.intake import IncomingFile, read_declared
from ingress.auth.gate import Caller
from ingress.chat.endpoints import build_accepted
from ingress.chat.schemas import Form, MessageIn, SignalIn, Submission, SubmissionCaps, check_submission
from ingress.chat.service import ChatService
from ingress.conversations.service import ConversationService
from ingress.errors import unprocessable
from ingress.fields import JsonBody, parse_conversation_id, problem_of_validation

MAX_NAME_CHARS = 128
SERVER_ERROR = 500
Checked = TypeVar("Checked", bound=BaseModel)
Payload = dict[str, Any]
Answer = tuple[int, BaseModel]


class AuthIn(JsonBody):
    """Who connects: what REST sends in a header and in the path."""

    tenant: str = Field(default="default", max_length=MAX_NAME_CHARS)
    project: str = Field(default="default", max_length=MAX_NAME_CHARS)
    token: str | None = Field(default=None, max_length=16_000)


class FileIn(JsonBody):
    """A file as binary attachment."""

    filename: str = Field(min_length=1, max_length=1024)
    mime: str = Field(default="", max_length=255)
    data: bytes


class SubmitIn(JsonBody):
    """The fields that a submission has in addition to those of REST."""

    model_config = ConfigDict(frozen=True, extra="ignore", strict=True)

    conversation_id: str = Field(max_length=80)
    idempotency_key: str | None = Field(default=None, max_length=202)
    files: tuple[FileIn, ...] = Field(default=(), max_length=100, strict=False)


class TargetIn(JsonBody):
    """A conversation."""

    conversation_id: str = Field(max_length=80)


@dataclass(frozen=True, slots=True)
class ChatCalls:
    """The calls that don't depend on their socket."""

    chat: ChatService
    conversations: ConversationService
    caps: SubmissionCaps

    def table(self) -> Mapping[str, Callable[[Caller, Payload], Awaitable[Answer]]]:
        """The calls by event name."""
        return {
            "chat_message": self.send_message,
            "chat_signal": self.send_signal,
            "conv_status.get": self.load_status,
        }

    async def send_message(self, caller: Caller, payload: Payload) -> Answer:
        """Like POST .../messages."""
        envelope, submission = await self._read(payload, MessageIn)
        key = _build_headers(envelope.idempotency_key)
        receipt = await self.chat.accept_message(caller.principal, envelope.conversation_id, submission, key)
        return 202, build_accepted(caller.principal, receipt)

    async def send_signal(self, caller: Caller, payload: Payload) -> Answer:
        """Like POST .../signals."""
        envelope, submission = await self._read(payload, SignalIn)
        conversation_id = parse_conversation_id(envelope.conversation_id)
        key = _build_headers(envelope.idempotency_key)
        receipt = await self.chat.accept_signal(caller.principal, conversation_id, submission, key)
        return 202, build_accepted(caller.principal, receipt)

    async def load_status(self, caller: Caller, payload: Payload) -> Answer:
        """Like GET .../{conversation_id}."""
        conversation_id = parse_conversation_id(check_form(TargetIn, payload).conversation_id)
        return 200, await self.conversations.load(caller.principal, conversation_id)

    async def _read(self, payload: Payload, form: type[Form]) -> tuple[SubmitIn, Submission[Form]]:
        envelope = check_form(SubmitIn, payload)
        fields = {name: value for name, value in payload.items() if name not in SubmitIn.model_fields}
        _check_no_bytes(fields, "body")
        files = tuple(
            IncomingFile(file.filename, read_declared(file.mime), file.data, f"body.files.{index}")
            for index, file in enumerate(envelope.files)
        )
        return envelope, await check_submission(fields, files, form, self.caps)


def check_form(form: type[Checked], payload: Payload) -> Checked:
    """The payload as a form. Raises a 422 problem that names the field."""
    try:
        return form.model_validate(payload)
    except ValidationError as error:
        raise problem_of_validation(error.errors(), "body") from error


def _check_no_bytes(value: object, place: str) -> None:
    """Reject attachments anywhere but in `files` (422)."""
    match value:
        case bytes():
            raise unprocessable(f"{place} is binary; only files[].data may be binary.")
        case dict():
            for key, item in cast(dict[str, object], value).items():
                _check_no_bytes(item, f"{place}.{key[:60]}")
        case list():
            for index, item in enumerate(cast(list[object], value)):
                _check_no_bytes(item, f"{place}.{index}")
        case _:
            return


def _build_headers(idempotency_key: str | None) -> Headers:
    """The headers of a REST request with this key; the REST check rejects what can't be in a header."""
    return Headers(raw=[(HEADER.encode(), idempotency_key.encode())] if idempotency_key is not None else [])


@contextmanager
def open_call_span(
    tracing: Tracing, name: str, handshake: Scope, *, tenant: str, payload: list[Any]
) -> Generator[Span]:
    """Open the span of a call, following the RPC conventions. `name` is one of the known calls.

    A socket lives for hours, so each call is a trace of its own, linked to the span that the handshake named.
    """
    attributes = {"rpc.system.name": "socketio", "rpc.method": name}
    with tracing.span(name, attributes, kind="server", links=SpanLinks(link=try_caller(handshake))) as span:
        trace = tracing.current()
        names = {"trace_id": trace.trace_id} if trace else {}
        # Terminals interpret control characters.
        if tenant.isprintable() and tenant:
            names["tenant"] = tenant
        match payload:
            case [{"conversation_id": str(wanted)}] if is_id(wanted, "conv"):
                names["conversation_id"] = wanted  # allowed or not; `new` has none yet
            case _:
                pass
        with bound_contextvars(**names):
            yield span


def note_status(span: Span, status: int) -> None:
    """Record the status that REST would return."""
    span.note({"rpc.response.status_code": str(status)})
    if status >= SERVER_ERROR:
        span.fail(str(status))
