"""One request to a search provider: JSON there and back, with caps on bytes and time."""

import asyncio
import json
from collections.abc import Mapping
from typing import Any, cast

import httpcore2

from everturn.errors import Unavailable

MAX_ANSWER_BYTES = 2 * 1024 * 1024
TIMEOUT_S = 15.0
_STEP_TIMEOUTS = {"connect": 5.0, "read": 10.0, "write": 5.0, "pool": 5.0}


async def request_json(
    method: str, url: str, *, headers: Mapping[str, str], body: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """The JSON object that is answered. Raises Unavailable with a sentence that holds nothing of the headers."""
    content = None if body is None else json.dumps(body).encode()
    sent: dict[bytes | str, bytes | str] = {"Accept": "application/json", "Accept-Encoding": "identity", **headers}
    if content is not None:
        sent["Content-Type"] = "application/json"
    try:
        async with asyncio.timeout(TIMEOUT_S), httpcore2.AsyncConnectionPool(max_connections=1) as pool:
            options = {"timeout": _STEP_TIMEOUTS}
            async with pool.stream(method, url, headers=sent, content=content, extensions=options) as response:
                if response.status != 200:
                    raise Unavailable(_refusal(response.status))
                return await asyncio.to_thread(_read_object, await _read(response))
    except TimeoutError as error:
        raise Unavailable(f"The search did not answer within {TIMEOUT_S:g} s.") from error
    except (httpcore2.NetworkError, httpcore2.TimeoutException, httpcore2.ProtocolError) as error:
        raise Unavailable(f"The search can't be reached ({type(error).__name__}).") from error


async def _read(response: httpcore2.Response) -> bytes:
    answer = bytearray()
    async for chunk in response.aiter_stream():
        answer += chunk
        if len(answer) > MAX_ANSWER_BYTES:
            raise Unavailable(f"The search returned more than {MAX_ANSWER_BYTES} bytes.")
    return bytes(answer)


def _read_object(answer: bytes) -> dict[str, Any]:
    try:
        value: object = json.loads(answer)
    except ValueError as error:
        raise Unavailable("The search did not return JSON.") from error
    if not isinstance(value, dict):
        raise Unavailable("The search did not return a JSON object.")
    return cast("dict[str, Any]", value)


def _refusal(status: int) -> str:
    if status in (401, 403):
        return "The search refuses the key of this platform; an operator has to set another one."
    if status == 429:
        return "The search takes no more requests just now. Try again later, or read known addresses."
    return f"The search answered {status}."
