"""Normalizes what providers reply: texts and counts of any shape, and errors with their kind, whether and when to
retry, and what may be shown.

People see a short neutral sentence. The provider's text is kept separately in `provider_text`, only for the log: it can
contain keys, addresses and markup.

The SDKs check nothing, so a value can have any JSON shape. It is validated here: callers can rely on counts that fit
the ledger and on texts that can be encoded and stored.
"""

import json
from collections import defaultdict
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import replace
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import cast
from urllib.parse import urlsplit, urlunsplit

import httpx2
from pydantic import BaseModel

from everturn.models.port import (
    ContextLimitExceeded,
    FailureKind,
    ModelFailed,
    ModelPiece,
    ReasoningDelta,
    ReplyFinished,
    TextDelta,
    ToolCallDelta,
)

MAX_COUNT = 1_000_000_000
"""Maximum tokens of one call; a larger count is a provider's defect and is not recorded."""
MAX_TOKEN_CHARS = 100
MAX_MESSAGE_CHARS = 500

TRANSPORT = (httpx2.HTTPError, httpx2.InvalidURL, httpx2.StreamError, OSError)
"""Errors raised below the SDKs if an exchange breaks."""
MALFORMED = (AttributeError, TypeError, LookupError, ValueError, ArithmeticError, RecursionError)
"""Errors raised by an SDK if a provider's JSON has an unexpected shape."""

_EVENT_STREAMS = frozenset({"text/event-stream", "application/vnd.amazon.eventstream"})
_RETRYABLE_STATUS = frozenset({408, 409, 424, 425, 429})
_RETRYABLE_KINDS = frozenset(
    {
        "overloaded_error",
        "rate_limit_error",
        "api_error",
        "timeout_error",
        "server_error",
        "rate_limit_exceeded",
        # Of Amazon Bedrock.
        "internalServerException",
        "modelStreamErrorException",
        "modelTimeoutException",
        "serviceUnavailableException",
        "throttlingException",
    }
)
_LASTING_KINDS = frozenset({"insufficient_quota", "billing_hard_limit_reached", "billing_error"})
_TOO_LONG_KINDS = frozenset({"context_length_exceeded", "string_above_max_length"})
_TOO_LONG_PHRASES = (
    "prompt is too long",
    "input is too long",
    "exceed context limit",
    "exceeds the context",
    "exceed the context",
    "context length",
    "context size",  # llama.cpp
    "context window",
    "exceeded model token limit",  # Kimi
    "exceeds the maximum number of tokens",  # Gemini
    "maximum allowed input length",  # OpenRouter
    "maximum prompt length",  # xAI
    "range of input length",  # DashScope
    "reduce the length of the messages",  # Groq
    "`inputs` tokens + `max_new_tokens` must be",  # Text Generation Inference
    "`inputs` must have less than",  # the same
    "longer than the maximum model length",  # vLLM, with pictures
    "sum of prompt length",  # TensorRT-LLM
)
_FILTER_KINDS = frozenset({"content_filter", "content_policy_violation", "data_inspection_failed"})
"""Of Azure and OpenAI, of gateways, and of DashScope."""
_FILTER_PHRASES = (
    "content management policy",  # Azure, through gateways
    "blocked by content filtering policy",  # Anthropic
    "flagged as potentially violating our usage policy",  # OpenAI
    "content exists risk",  # DeepSeek
)
_NO_TOOLS_PHRASES = (
    "does not support tools",  # Ollama
    "--enable-auto-tool-choice",  # vLLM
    "--jinja",  # llama.cpp
    "support tool use",  # OpenRouter
)
_SENTENCES: Mapping[FailureKind, str] = {
    "unauthorized": "The model's server rejected the API key or denied access",
    "no_credit": "The account at the model's provider has no credit left",
    "rate_limited": "The rate limit of the model's server is reached",
    "overloaded": "The model's server is overloaded",
    "server_error": "The model's server failed",
    "timeout": "The model's server did not answer in time",
    "not_found": "The model's server does not know this model or address",
    "bad_request": "The model's server rejected the request",
    "provider_error": "The model's server reported an error",
}
_KIND_OF_STATUS: Mapping[int, FailureKind] = {
    401: "unauthorized",
    402: "no_credit",
    403: "unauthorized",
    404: "not_found",
    408: "timeout",
    409: "provider_error",
    424: "server_error",  # Bedrock's own status for a model that failed
    425: "provider_error",
    429: "rate_limited",
    503: "overloaded",
    529: "overloaded",
}
_KIND_OF_TOKEN: Mapping[str, FailureKind] = {
    "overloaded_error": "overloaded",
    "rate_limit_error": "rate_limited",
    "rate_limit_exceeded": "rate_limited",
    "timeout_error": "timeout",
    "api_error": "server_error",
    "server_error": "server_error",
    "authentication_error": "unauthorized",
    "permission_error": "unauthorized",
    "internalServerException": "server_error",
    "modelStreamErrorException": "server_error",
    "modelTimeoutException": "timeout",
    "serviceUnavailableException": "overloaded",
    "throttlingException": "rate_limited",
    "validationException": "bad_request",
}


class ContentFiltered(ModelFailed):
    """A filter of the provider rejected the request, or the rest of its reply. The adapters end the reply with it."""


def read_fields(value: object) -> Mapping[str, object]:
    """The fields of a JSON object, or of an object that an SDK made of one; empty for other values."""
    if isinstance(value, BaseModel):
        return dict(value)
    return cast("Mapping[str, object]", value) if isinstance(value, Mapping) else {}


def try_read_count(value: object) -> int | None:
    """A number of tokens; None if the value is not a valid count."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return value if 0 <= value <= MAX_COUNT else None


def read_text(value: object, *, max_chars: int = MAX_MESSAGE_CHARS) -> str:
    """Any JSON value as a text that can be encoded and stored; empty for null."""
    if value is None:
        return ""
    if not isinstance(value, str):
        try:
            value = json.dumps(value, ensure_ascii=True, default=str)
        except (TypeError, ValueError, RecursionError):
            value = type(value).__name__
    return replace_surrogates(value[:max_chars])


def try_read_token(value: object) -> str | None:
    """A short text, such as the code of an error or the name of a model; None if the value is not one."""
    if isinstance(value, bool) or not isinstance(value, str | int):
        return None
    token = " ".join(read_text(str(value), max_chars=MAX_TOKEN_CHARS).split())
    return token or None


def replace_surrogates(text: str) -> str:
    """The text with surrogate pairs joined, and U+FFFD for each lone surrogate."""
    if text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


class SurrogateJoiner:
    """Joins the halves of a character that a provider split over two pieces of text."""

    def __init__(self) -> None:
        self._half = ""

    def feed(self, text: str) -> str:
        """Return the joined text; a first half at the end waits for its second one."""
        text = self._half + text
        self._half = ""
        if text and "\ud800" <= text[-1] <= "\udbff":
            text, self._half = text[:-1], text[-1]
        return replace_surrogates(text)

    def finish(self) -> str:
        """Return what is still held back."""
        half, self._half = self._half, ""
        return replace_surrogates(half)


async def normalize_pieces(pieces: AsyncGenerator[ModelPiece, None]) -> AsyncGenerator[ModelPiece, None]:
    """The pieces of one reply with texts that can be encoded and stored. Closing it closes `pieces`."""
    text, reasoning = SurrogateJoiner(), SurrogateJoiner()
    arguments: defaultdict[int, SurrogateJoiner] = defaultdict(SurrogateJoiner)
    async with aclosing(pieces):
        async for piece in pieces:
            match piece:
                case TextDelta():
                    if joined := text.feed(piece.text):
                        yield TextDelta(joined)
                case ReasoningDelta():
                    if joined := reasoning.feed(piece.text):
                        yield ReasoningDelta(joined)
                case ToolCallDelta():
                    joined = arguments[piece.index].feed(piece.arguments)
                    if joined or piece.name:
                        yield replace(piece, arguments=joined)
                case ReplyFinished():
                    for index, joiner in arguments.items():
                        if left := joiner.finish():
                            yield ToolCallDelta(index, left)
                    if left := reasoning.finish():
                        yield ReasoningDelta(left)
                    if left := text.finish():
                        yield TextDelta(left)
                    yield piece
                case _:
                    yield piece


def build_failure(
    *, status: int, kind: object, message: object, headers: Mapping[str, str], now: datetime
) -> ModelFailed:
    """The failure for an error response: `status` is 200 for one inside a stream, `kind` is the provider's type or
    code.

    `kind` and `message` can be any JSON value.
    """
    if 300 <= status < 400:
        return _build_redirect_failure(status, headers)
    code, text = try_read_token(kind), read_text(message).removeprefix(f"Error code: {status} - ")
    if status == 200 and code is not None and code.isdecimal() and 400 <= int(code) <= 599:
        status = int(code)  # proxies report an error inside a stream with the HTTP status as its code
    provider_text = f"{status} {code or 'error'}: {text}"
    if _is_filtered(status, code, text):
        return ContentFiltered("A filter of the provider rejected it.", kind="bad_request", provider_text=provider_text)
    if is_too_long(status, code, text):
        return ContextLimitExceeded("The request is longer than the model's context.", provider_text=provider_text)
    shown = "" if status == 200 else f" ({status})"
    if any(phrase in text.lower() for phrase in _NO_TOOLS_PHRASES):
        return ModelFailed(
            f"The model's server does not accept tools{shown}. Start it with its option for tools, or set the codec to "
            "json.",
            kind="bad_request",
            provider_text=provider_text,
        )
    found = _find_kind(status, code)
    return ModelFailed(
        f"{_SENTENCES.get(found, _SENTENCES['provider_error'])}{shown}.",
        kind=found,
        retryable=found != "unauthorized" and _is_retryable(status, code, headers),
        retry_after_s=read_retry_after(headers, now),
        provider_text=provider_text,
    )


def build_transport_failure(error: BaseException) -> ModelFailed:
    """The failure for a broken exchange: no connection, a lost one, or bytes that are not UTF-8 or not JSON."""
    provider_text = read_text(f"{type(error).__name__}: {error}")
    match error:
        case UnicodeEncodeError():
            return ModelFailed("The prompt contains text that can't be sent.", kind="bad_request")
        case ModelFailed():
            return error
        case _ if isinstance(error, MALFORMED):
            return ModelFailed(
                "The model's server sent data that can't be read.",
                kind="invalid_reply",
                retryable=True,
                provider_text=provider_text,
            )
        case _:
            return ModelFailed(
                "The connection to the model's server failed.",
                kind="connection",
                retryable=True,
                provider_text=provider_text,
            )


def try_build_error_object(body: bytes, headers: Mapping[str, str], now: datetime) -> ModelFailed | None:
    """The failure that a JSON reply with status 200 reports, in a form that `try_find_error` knows; None if it reports
    no known kind of error."""
    try:
        error = try_find_error(json.loads(body))
    except (ValueError, RecursionError):
        return None
    if error is None:
        return None
    failure = build_error_object_failure(error, headers, now)
    return None if failure.kind == "provider_error" else failure


def try_find_error(value: object) -> Mapping[str, object] | None:
    """The fields of the error that a JSON value reports: `{"error": {...}}`, `{"error": "..."}`, either of them in a
    list (Gemini), or `{"object": "error", ...}` (vLLM); None if it reports none."""
    if isinstance(value, list):
        items = cast("list[object]", value)
        return try_find_error(items[0]) if len(items) == 1 else None
    fields = read_fields(value)
    if fields.get("object") == "error":
        return fields
    error = fields.get("error")
    return read_fields(error) or ({"message": error} if error else None)


def build_error_object_failure(error: Mapping[str, object], headers: Mapping[str, str], now: datetime) -> ModelFailed:
    """The failure for an error with status 200, inside a stream or in place of one."""
    kind = error.get("type") if error.get("code") is None else error["code"]
    return build_failure(status=200, kind=kind, message=error.get("message"), headers=headers, now=now)


def build_cut_failure(headers: Mapping[str, str], now: datetime, *, has_events: bool) -> ModelFailed:
    """The failure for a stream without a final event; `headers` are those of the response.

    A response that is not a stream usually means a wrong address, but a gateway can also send one once, such as a page
    that says it is busy.
    """
    content_type = headers.get("content-type", "")
    if has_events or content_type.partition(";")[0].strip().lower() in _EVENT_STREAMS:
        return ModelFailed("The reply was cut off before its end.", kind="cut_reply", retryable=True)
    return ModelFailed(
        "The model's address did not answer with a stream of events. Its base URL may be wrong.",
        kind="invalid_reply",
        retryable=True,
        likely_permanent=True,
        retry_after_s=read_retry_after(headers, now),
        provider_text=f"content type {read_text(content_type)}",
    )


def read_retry_after(headers: Mapping[str, str], now: datetime) -> float | None:
    """Seconds from `retry-after-ms` or `retry-after` (seconds or an HTTP date); None if absent, past or unreadable."""
    seconds = _seconds(headers.get("retry-after-ms"), divisor=1000) or _seconds(headers.get("retry-after"), divisor=1)
    if seconds is None:
        seconds = _seconds_until(headers.get("retry-after"), now)
    return seconds if seconds is not None and 0 < seconds < float("inf") else None


def _build_redirect_failure(status: int, headers: Mapping[str, str]) -> ModelFailed:
    """Redirects are not followed: another server would receive the conversation."""
    try:
        parts = urlsplit(headers.get("location", ""))
    except ValueError:
        address = "an invalid address"
    else:
        # Credentials can be before the host and in the query.
        address = urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))
    return ModelFailed(
        f"The model's address redirects to another one ({status}), which must be set as its base URL instead.",
        kind="invalid_reply",
        provider_text=f"redirects to {read_text(address)}",
    )


def _find_kind(status: int, code: str | None) -> FailureKind:
    if code in _LASTING_KINDS or (code or "").endswith("spend_limit_reached"):
        return "no_credit"
    if status in _KIND_OF_STATUS:
        return _KIND_OF_STATUS[status]
    if status >= 500:
        return "server_error"
    if status >= 400:
        return "bad_request"
    return _KIND_OF_TOKEN.get(code or "", "provider_error")


def _is_retryable(status: int, kind: str | None, headers: Mapping[str, str]) -> bool:
    if headers.get("x-should-retry") in ("true", "false"):
        return headers["x-should-retry"] == "true"
    if kind in _LASTING_KINDS or (kind or "").endswith("spend_limit_reached"):
        return False
    if status == 200:
        return kind is None or kind in _RETRYABLE_KINDS
    return status in _RETRYABLE_STATUS or status >= 500


def _is_filtered(status: int, kind: str | None, message: str) -> bool:
    lowered = message.lower()
    return status in (200, 400, 422) and (kind in _FILTER_KINDS or any(phrase in lowered for phrase in _FILTER_PHRASES))


def is_too_long(status: int, kind: str | None, message: str) -> bool:
    """Whether an error says that the request is longer than the model's context."""
    if status == 413 or kind in _TOO_LONG_KINDS:
        return True
    lowered = message.lower()
    return status in (200, 400, 422, 500) and any(phrase in lowered for phrase in _TOO_LONG_PHRASES)


def _seconds(value: str | None, *, divisor: int) -> float | None:
    try:
        return float(value) / divisor if value is not None else None
    except ValueError:
        return None


def _seconds_until(value: str | None, now: datetime) -> float | None:
    if value is None:
        return None
    try:
        when = parsedate_to_datetime(value)
        return (when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp() - now.timestamp()
    except (ValueError, OverflowError):
        return None
