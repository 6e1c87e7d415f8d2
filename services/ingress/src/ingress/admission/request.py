"""The request as endpoints get it: its body is capped while it streams, and its JSON is strict."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing, nullcontext
from email.message import Message
from typing import Any

from fastapi import Request
from starlette.requests import ClientDisconnect

from ingress.admission.limits.bodies import BODY_BYTES_PER_S, BODY_GRACE_S, BODY_TIMEOUT_S, BodyHold
from ingress.admission.strict_json import BadJson, load_strict
from ingress.errors import malformed, too_large, too_slow, unsupported

_CAP_KEY = "everturn.max_body_bytes"
_HOLD_KEY = "everturn.body_hold"


class AdmittedRequest(Request):
    """A request whose body may have at most so many bytes as its route says, and has to keep coming.

    It may take `body_timeout_s`, and may lag BODY_BYTES_PER_S by `grace_s`.
    """

    idle_timeout_s: float = 30
    body_timeout_s: float = BODY_TIMEOUT_S
    grace_s: float = BODY_GRACE_S

    async def stream(self) -> AsyncGenerator[bytes, None]:
        """The body as it comes. Raises a 413 problem at the first byte too many, whatever Content-Length said."""
        cap, taken = self.scope[_CAP_KEY], 0
        hold: BodyHold | None = self.scope.get(_HOLD_KEY)
        began = asyncio.get_running_loop().time()
        chunks = super().stream()
        with hold.reading() if hold is not None else nullcontext():
            async with aclosing(chunks):
                while (chunk := await self._next_chunk(chunks, began, taken)) is not None:
                    taken += len(chunk)
                    if taken > cap:
                        raise too_large(f"The body has more than {cap} bytes.")
                    if hold is not None:
                        hold.grow(len(chunk))
                    yield chunk

    async def _next_chunk(self, chunks: AsyncGenerator[bytes, None], began: float, taken: int) -> bytes | None:
        """Raises 408 when the body, of which `taken` bytes came since `began` in loop time, is too slow."""
        now = asyncio.get_running_loop().time()
        waits = {
            began + self.body_timeout_s: f"The body was not complete after {self.body_timeout_s:g} s.",
            began + self.grace_s + taken / BODY_BYTES_PER_S: f"The body is slower than {BODY_BYTES_PER_S} bytes/s.",
            now + self.idle_timeout_s: f"No byte of the body came for {self.idle_timeout_s:g} s.",
        }
        give_up = min(waits)
        try:
            async with asyncio.timeout_at(give_up):
                return await anext(chunks, None)
        except TimeoutError as error:
            raise too_slow(waits[give_up]) from error
        except ClientDisconnect as error:
            raise malformed("The client disconnected before the body was complete.") from error

    def tighten(self, max_body_bytes: int) -> None:
        """Lower the cap of this body, once more is known of it. Raises a 413 problem where its length is above."""
        self.scope[_CAP_KEY] = min(self.scope[_CAP_KEY], max_body_bytes)
        check_length(self, self.scope[_CAP_KEY])

    async def json(self) -> Any:
        """The body as strict JSON."""
        if not hasattr(self, "_strict_json"):
            self._strict_json = await load_json(await self.body(), "The body")
        return self._strict_json


def admit_request(request: Request, *, max_body_bytes: int, hold: BodyHold | None = None) -> AdmittedRequest:
    """Wrap a request, after the checks that need no body. `hold` counts its bytes until `release_body`."""
    request.scope[_CAP_KEY] = max_body_bytes
    announced = check_length(request, max_body_bytes)
    if hold is not None:
        hold.check_announced(announced)
        request.scope[_HOLD_KEY] = hold
    if request.headers.get("content-encoding", "identity").lower() != "identity":
        raise unsupported("Compressed bodies are not accepted.")
    return AdmittedRequest(request.scope, request.receive)


def release_body(request: Request) -> None:
    """The request has ended; its bytes count no longer."""
    hold: BodyHold | None = request.scope.get(_HOLD_KEY)
    if hold is not None:
        hold.release()


def check_length(request: Request, max_body_bytes: int) -> int:
    """The announced length, 0 without one. Refuses one above the cap, before reading (413)."""
    announced = request.headers.get("content-length", "0")
    if announced.isascii() and announced.isdigit() and len(announced) < 20 and int(announced) <= max_body_bytes:
        return int(announced)
    raise too_large(f"The body has more than {max_body_bytes} bytes.")


def check_json_type(request: Request) -> None:
    """Refuse a body that does not say it is JSON (415)."""
    if media_type(request) != "application/json":
        raise unsupported("Send the body as application/json.")
    check_charset(request)


def check_charset(request: Request) -> None:
    """Refuse JSON that says it is in another charset (415): read as UTF-8 it would be other words."""
    if str(_content_type(request).get_param("charset", "utf-8")).lower() != "utf-8":
        raise unsupported("JSON must be encoded as UTF-8.")


def media_type(request: Request) -> str:
    """The media type of the body without its parameters, in lower case."""
    return _content_type(request).get_content_type()


def _content_type(request: Request) -> Message:
    message = Message()
    message["content-type"] = request.headers.get("content-type", "application/octet-stream")
    return message


async def load_json(raw: bytes, what: str) -> Any:
    """Strict JSON, or a 400 problem that says what is wrong with `what`."""
    try:
        return await load_strict(raw)
    except BadJson as error:
        raise malformed(f"{what} is not valid JSON. {error.detail}") from error
