"""Traces: spans, and the context that is stored with a turn. Without a collector no spans are made, and only a caller's
trace is passed on: this is what the API of OpenTelemetry does without its SDK."""

import contextlib
import hashlib
import re
import time
from collections.abc import Generator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Final, Literal

from opentelemetry import trace

_TRACEPARENT: Final = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?", re.ASCII)
_SAMPLED: Final = 0x01

_NS: Final = 1_000_000_000
_KINDS: Final = {
    "internal": trace.SpanKind.INTERNAL,
    "server": trace.SpanKind.SERVER,
    "client": trace.SpanKind.CLIENT,
}

Attributes = Mapping[str, str | int | float | bool | Sequence[str]]
"""Names are OpenTelemetry's where it defines one, otherwise `everturn.<what>`. Never text of people or models."""
SpanKind = Literal["internal", "server", "client"]


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


own_context: ContextVar[TraceContext | None] = ContextVar("everturn_own_span", default=None)
"""The ids that the span which is being started gets, instead of random ones."""


@dataclass(frozen=True, slots=True)
class SpanLinks:
    """What a span belongs to when that does not follow from the code around it. `own` sets the ids of the span."""

    parent: TraceContext | None = None
    own: TraceContext | None = None
    link: TraceContext | None = None


class Span:
    """One open span."""

    def __init__(self, span: trace.Span) -> None:
        self._span = span

    def note(self, attributes: Attributes) -> None:
        self._span.set_attributes(attributes)

    def rename(self, name: str) -> None:
        self._span.update_name(name)

    def fail(self, why: str) -> None:
        """Mark the span as failed; `why` is a short word of a bounded set."""
        self._span.set_attribute("error.type", why)
        self._span.set_status(trace.Status(trace.StatusCode.ERROR))


class Tracing:
    """Makes spans with a tracer of OpenTelemetry. A span that begins inside another, in this task or in one that it
    started, is its child. The tracer of a process without a collector only passes on the caller's trace."""

    def __init__(self, tracer: trace.Tracer) -> None:
        self._tracer = tracer

    @contextlib.contextmanager
    def span(
        self, name: str, attributes: Attributes, *, kind: SpanKind = "internal", links: SpanLinks | None = None
    ) -> Generator[Span]:
        """A span from the block's beginning to its end. An exception that leaves the block marks it as failed."""
        links = links or SpanLinks()
        parent = trace.set_span_in_context(trace.NonRecordingSpan(_build(links.parent))) if links.parent else None
        linked = [trace.Link(_build(links.link))] if links.link else []
        given = own_context.set(links.own)
        try:
            made = self._tracer.start_span(name, parent, _KINDS[kind], attributes, linked)
        finally:
            own_context.reset(given)
        with trace.use_span(made, end_on_exit=True, record_exception=False, set_status_on_exception=False):
            span = Span(made)
            try:
                yield span
            except BaseException as error:
                # The text of an exception can contain what a person wrote.
                span.fail(type(error).__name__)
                raise

    def record(self, name: str, attributes: Attributes, *, lasted_s: float) -> None:
        """Record a span that has just ended, for something that can't report itself."""
        ended = time.time_ns()
        began = ended - int(lasted_s * _NS)
        self._tracer.start_span(name, attributes=attributes, start_time=began).end(ended)

    def current(self) -> TraceContext | None:
        """The span around the caller; without a collector, that of the caller of this process."""
        found = trace.get_current_span().get_span_context()
        if not found.is_valid:
            return None
        return TraceContext(f"{found.trace_id:032x}", f"{found.span_id:016x}", found.trace_flags.sampled)


NO_TRACING: Final = Tracing(trace.NoOpTracer())


def _build(context: TraceContext) -> trace.SpanContext:
    flags = trace.TraceFlags(trace.TraceFlags.SAMPLED if context.sampled else trace.TraceFlags.DEFAULT)
    return trace.SpanContext(int(context.trace_id, 16), int(context.span_id, 16), is_remote=True, trace_flags=flags)
