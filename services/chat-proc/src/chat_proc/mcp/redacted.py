"""The one place where secrets are removed from what an MCP server says: all its messages pass here before the SDK and
the platform read them, so that nothing can be cut, logged or shown before it was searched."""

import asyncio
from dataclasses import replace
from types import TracebackType
from typing import Any, Final, Protocol, Self, cast

import anyio
import mcp_types
from mcp.shared.message import SessionMessage
from mcp_types import PARSE_ERROR, ErrorData, JSONRPCError, JSONRPCMessage, JSONRPCResponse
from pydantic import BaseModel

from everturn.core.logging import Redactor
from everturn.timeline.inert import escape_line

Incoming = SessionMessage | Exception

MAX_ERROR_CHARS: Final = 500
_PROTOCOL_KEYS: Final = frozenset(
    field.alias or name
    for model in vars(mcp_types).values()
    if isinstance(model, type) and issubclass(model, BaseModel)
    for name, field in model.model_fields.items()
)
"""The protocol's own keys are not secrets, and messages can't be read without them."""
_ON_LOOP_CHARS: Final = 64 * 1024
_ON_LOOP_VALUES: Final = 500
"""What is searched on the event loop; more is searched in a thread."""


class _Stream(Protocol):
    async def receive(self) -> Incoming: ...

    async def aclose(self) -> None: ...


class RedactedStream:
    """The messages of `inner` without the secrets that `redactor` has at that moment. Ids and methods are kept, and
    what the SDK shows of a message that it could not parse is left out: it cuts that, so a part of a secret could be
    left."""

    def __init__(self, inner: _Stream, redactor: Redactor) -> None:
        self._inner = inner
        self._redactor = redactor

    @property
    def last_context(self) -> object:
        """The context of the sender, which the SDK looks for."""
        return getattr(self._inner, "last_context", None)

    async def receive(self) -> Incoming:
        item = await self._inner.receive()
        if isinstance(item, Exception) or not self._redactor.has_secrets:
            return item
        message = item.message
        if _is_small(_content_of(message)):
            return replace(item, message=self._redact(message))
        return replace(item, message=await asyncio.to_thread(self._redact, message))

    def _redact(self, message: JSONRPCMessage) -> JSONRPCMessage:
        content = self._redactor.redact_value(_content_of(message), kept_keys=_PROTOCOL_KEYS)
        if isinstance(message, JSONRPCError):
            return message.model_copy(update={"error": _without_input(ErrorData.model_validate(content))})
        field = "result" if isinstance(message, JSONRPCResponse) else "params"
        return message.model_copy(update={field: content})

    async def aclose(self) -> None:
        await self._inner.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Incoming:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


def describe(redactor: Redactor, text: str, max_chars: int = MAX_ERROR_CHARS) -> str:
    """What a server or a program says is wrong, as one line without secrets. Escaping or cutting first could change or
    split a secret, so that it would not be found."""
    lines = (line.strip() for line in redactor.redact(text).splitlines())
    return escape_line(" ".join(line for line in lines if line))[:max_chars]


def _content_of(message: JSONRPCMessage) -> object:
    """What a server can write into a message, as values of JSON."""
    if isinstance(message, JSONRPCError):
        return message.error.model_dump()
    return message.result if isinstance(message, JSONRPCResponse) else message.params


def _without_input(error: ErrorData) -> ErrorData:
    if error.code != PARSE_ERROR or not error.message.startswith("Failed to parse "):
        return error
    return error.model_copy(update={"message": f"{error.message.partition(':')[0]}."})


def _is_small(content: object) -> bool:
    values, chars, rest = 0, 0, [content]
    while rest:
        match value := rest.pop():
            case str():
                chars += len(value)
            case dict():
                fields = cast("dict[Any, Any]", value)
                rest += [*fields, *fields.values()]
            case list():
                rest += cast("list[Any]", value)
            case _:
                pass
        values += 1
        if values + len(rest) > _ON_LOOP_VALUES or chars > _ON_LOOP_CHARS:
            return False
    return True
