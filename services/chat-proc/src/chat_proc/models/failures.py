"""How a provider's refusal becomes ours: which answers may be tried again, when, and which mean "too long"."""

from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from everturn.ports.language_model import ContextLimitExceeded, ModelFailed

_RETRYABLE_STATUS = frozenset({408, 409, 425, 429})
_RETRYABLE_KINDS = frozenset(
    {"overloaded_error", "rate_limit_error", "api_error", "timeout_error", "server_error", "rate_limit_exceeded"}
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
    "context window",
)
_MAX_DETAIL_CHARS = 500


def build_failure(
    *, status: int, kind: str | None, message: str, headers: Mapping[str, str], now: datetime
) -> ModelFailed:
    """The failure for an error answer: `status` 200 for one inside a stream, `kind` the provider's type or code."""
    if status == 200 and kind is not None and kind.isdecimal():
        status = int(kind)  # proxies report an error inside a stream with the HTTP status as its code
    if status in (401, 403):
        return ModelFailed(f"The provider refused the key or the permission ({status}).")
    detail = f"{status} {kind or 'error'}: {message}"[:_MAX_DETAIL_CHARS]
    if _is_too_long(status, kind, message):
        return ContextLimitExceeded(detail)
    return ModelFailed(
        detail, retryable=_is_retryable(status, kind, headers), retry_after_s=read_retry_after(headers, now)
    )


def build_transport_failure(error: Exception) -> ModelFailed:
    """The failure for an exchange that broke: no connection, a cut one, or bytes that are neither UTF-8 nor JSON."""
    match error:
        case UnicodeEncodeError():
            return ModelFailed("The prompt holds text that can't be sent.")
        case ValueError():
            return ModelFailed("The provider sent bytes that can't be read.", retryable=True)
        case _:
            return ModelFailed(f"The connection failed: {type(error).__name__}.", retryable=True)


def read_retry_after(headers: Mapping[str, str], now: datetime) -> float | None:
    """Seconds from `retry-after-ms` or `retry-after` (seconds or an HTTP date); None if absent, past or unreadable."""
    seconds = _seconds(headers.get("retry-after-ms"), divisor=1000) or _seconds(headers.get("retry-after"), divisor=1)
    if seconds is None:
        seconds = _seconds_until(headers.get("retry-after"), now)
    return seconds if seconds is not None and 0 < seconds < float("inf") else None


def _is_retryable(status: int, kind: str | None, headers: Mapping[str, str]) -> bool:
    if headers.get("x-should-retry") in ("true", "false"):
        return headers["x-should-retry"] == "true"
    if kind in _LASTING_KINDS or (kind or "").endswith("spend_limit_reached"):
        return False
    if status == 200:
        return kind is None or kind in _RETRYABLE_KINDS
    return status in _RETRYABLE_STATUS or status >= 500


def _is_too_long(status: int, kind: str | None, message: str) -> bool:
    if status == 413 or kind in _TOO_LONG_KINDS:
        return True
    lowered = message.lower()
    return status in (200, 400, 422) and any(phrase in lowered for phrase in _TOO_LONG_PHRASES)


def _seconds(value: str | None, *, divisor: int) -> float | None:
    try:
        return float(value) / divisor if value is not None else None
    except ValueError:
        return None


def _seconds_until(value: str | None, now: datetime) -> float | None:
    try:
        when = parsedate_to_datetime(value) if value is not None else None
    except ValueError:
        return None
    if when is None:
        return None
    return (when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp() - now.timestamp()
