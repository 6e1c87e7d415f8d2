"""Traces: spans, the context that is stored with a turn, and the exporter. Without a collector no spans are made, and
only a caller's trace is passed on."""

import contextlib
import hashlib
import importlib
import os
import re
import socket
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AbstractContextManager
from contextvars import ContextVar, Token
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Literal, Protocol

# Positions in a trace in W3C Trace Context format, and the ids of a turn's spans.

_TRACEPARENT: Final = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?", re.ASCII)
_SAMPLED: Final = 0x01


@dataclass(frozen=True, slots=True)
class TraceContext:
    """A span of a trace: 32 and 16 hexadecimal digits, neither all zero."""

    trace_id: str
    span_id: str
    sampled: bool = True

    def __str__(self) -> str:
        """As a `traceparent` header."""
        return f"00-{self.trace_id}-{self.span_id}-{int(self.sampled):02x}"


def try_parse_context(header: str | None) -> TraceContext | None:
    """Parse a `traceparent`, of later versions too; None if it is invalid, so that no request fails because of it."""
    found = _TRACEPARENT.fullmatch(header) if header and len(header) <= 512 else None
    if found is None:
        return None
    version, trace_id, span_id, flags, more = found.groups()
    if version == "ff" or (version == "00" and more) or not int(trace_id, 16) or not int(span_id, 16):
        return None
    return TraceContext(trace_id, span_id, bool(int(flags, 16) & _SAMPLED))


def build_turn_context(turn_id: str, fence: int, request: TraceContext | None) -> TraceContext:
    """The span of a turn's work under one lease. It is derived from the ids, so that a worker that takes over a turn
    can name the span of its predecessor, which may have died without reporting it. Without a `request` the turn has its
    own trace.
    """
    digest = hashlib.sha256(f"{turn_id}:{fence}".encode()).hexdigest()
    trace_id = request.trace_id if request else hashlib.sha256(turn_id.encode()).hexdigest()[:32]
    return TraceContext(trace_id, digest[:16], sampled=request.sampled if request else True)


Attributes = Mapping[str, str | int | float | bool | Sequence[str]]
"""Names are OpenTelemetry's where it defines one, otherwise `everturn.<what>`. Never text of people or models."""
SpanKind = Literal["internal", "server", "client"]


@dataclass(frozen=True, slots=True)
class SpanPlace:
    """The position of a span when it does not follow from the code around it. `own` sets the ids of the span."""

    parent: TraceContext | None = None
    own: TraceContext | None = None
    link: TraceContext | None = None


class Span(Protocol):
    """One open span."""

    def note(self, attributes: Attributes) -> None: ...

    def rename(self, name: str) -> None: ...

    def fail(self, why: str) -> None:
        """Mark the span as failed; `why` is a short word of a bounded set."""
        ...


class Tracing(Protocol):
    """Makes spans. A span that begins inside another, in this task or in one that it started, is its child."""

    def span(
        self, name: str, attributes: Attributes, *, kind: SpanKind = "internal", place: SpanPlace | None = None
    ) -> AbstractContextManager[Span]:
        """A span from the block's beginning to its end. An exception that leaves the block marks it as failed."""
        ...

    def tell(self, name: str, attributes: Attributes, *, lasted_s: float) -> None:
        """Record a span that has just ended, for something that can't report itself."""
        ...

    def current(self) -> TraceContext | None:
        """The span around the caller; without a collector, that of the caller of this process."""
        ...


_passed_on: ContextVar[TraceContext | None] = ContextVar("everturn_trace", default=None)


class _NoSpan:
    """Records nothing."""

    __slots__ = ("_context", "_token")

    def __init__(self, context: TraceContext | None = None) -> None:
        self._context = context
        self._token: Token[TraceContext | None] | None = None

    def __enter__(self) -> "_NoSpan":
        if self._context is not None:
            self._token = _passed_on.set(self._context)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._token is not None:
            _passed_on.reset(self._token)

    def note(self, attributes: Attributes) -> None: ...

    def rename(self, name: str) -> None: ...

    def fail(self, why: str) -> None: ...


_NOTHING = _NoSpan()


class NoTracing:
    """Implements Tracing for a process without a collector."""

    def span(
        self, name: str, attributes: Attributes, *, kind: SpanKind = "internal", place: SpanPlace | None = None
    ) -> AbstractContextManager[Span]:
        return _NOTHING if place is None or place.parent is None else _NoSpan(place.parent)

    def tell(self, name: str, attributes: Attributes, *, lasted_s: float) -> None: ...

    def current(self) -> TraceContext | None:
        return _passed_on.get()


NO_TRACING = NoTracing()


# Whether this process exports spans: only if a collector is configured.

DRIVER = "everturn.core.otlp"


@contextlib.asynccontextmanager
async def open_tracing(service: str, endpoint: str) -> AsyncGenerator[Tracing]:
    """Tracing to the OTLP collector at this URL while the block runs; an empty URL disables it and imports nothing."""
    if not endpoint:
        yield NO_TRACING
        return
    instance = f"{socket.gethostname()}:{os.getpid()}"
    async with importlib.import_module(DRIVER).open_otlp_tracing(service, instance, endpoint) as tracing:
        yield tracing
