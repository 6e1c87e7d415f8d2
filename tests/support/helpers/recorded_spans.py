"""Tracing that keeps its spans, made by OpenTelemetry's SDK."""

from dataclasses import dataclass
from typing import ClassVar

from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from everturn.core.otlp import GivenIds
from everturn.core.tracing import TraceContext, Tracing


@dataclass(frozen=True)
class RecordedSpan:
    """A span that has ended. `failed` is why, or empty."""

    name: str
    kind: str
    own: TraceContext
    parent: TraceContext | None
    link: TraceContext | None
    attributes: dict[str, object]
    failed: str


class KeptTracing(Tracing):
    """`spans` are those that have ended, in the order of their beginnings."""

    _kinds: ClassVar = {kind: kind.name.lower() for kind in trace.SpanKind}

    def __init__(self) -> None:
        self._kept = InMemorySpanExporter()
        provider = TracerProvider(id_generator=GivenIds(), shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(self._kept))
        super().__init__(provider.get_tracer("test"))

    @property
    def spans(self) -> list[RecordedSpan]:
        ended = sorted(self._kept.get_finished_spans(), key=lambda span: span.start_time or 0)
        return [self._build(span) for span in ended]

    def _build(self, span: ReadableSpan) -> RecordedSpan:
        attributes: dict[str, object] = {
            name: list(value) if isinstance(value, tuple) else value for name, value in (span.attributes or {}).items()
        }
        failed = "" if span.status.is_ok or span.status.is_unset else str(attributes.pop("error.type"))
        link = _build_context(span.links[0].context) if span.links else None
        kind = self._kinds[span.kind]
        own, parent = _build_context(span.context), _build_context(span.parent)
        assert own is not None
        return RecordedSpan(span.name, kind, own, parent, link, attributes, failed)


def _build_context(found: trace.SpanContext | None) -> TraceContext | None:
    return TraceContext(f"{found.trace_id:032x}", f"{found.span_id:016x}", found.trace_flags.sampled) if found else None
