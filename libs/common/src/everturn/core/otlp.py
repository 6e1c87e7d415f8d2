"""Exports spans to an OpenTelemetry collector over HTTP. Imported lazily, since its libraries cost time and memory.

Apart from the address it reads the SDK's own variables: OTEL_EXPORTER_OTLP_HEADERS, OTEL_TRACES_SAMPLER,
OTEL_BSP_MAX_QUEUE_SIZE and so on.
"""

import asyncio
import contextlib
import logging
import threading
from collections.abc import AsyncGenerator, Sequence
from typing import Final

import structlog
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_INSTANCE_ID, SERVICE_NAME, SERVICE_VERSION, Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator

from everturn import __version__
from everturn.core.metrics import SPANS_ENDED, SPANS_SENT
from everturn.core.tracing import Tracing, own_context

_log = structlog.get_logger(__name__)

PATH: Final = "/v1/traces"
SCHEMA_URL: Final = "https://opentelemetry.io/schemas/1.44.0"
"""The version of the conventions whose attribute names we use; tests/support/helpers/span_names.py lists them."""
EXPORT_TIMEOUT_S: Final = 5.0
CLOSE_LIMIT_S: Final = 2.0
"""The time limit for the last spans at the end of the process; an unreachable collector doesn't delay a drain."""


@contextlib.asynccontextmanager
async def open_otlp_tracing(service: str, instance: str, endpoint: str) -> AsyncGenerator[Tracing]:
    """Tracing to the collector at `endpoint`, such as `http://collector:4318`, while the block runs."""
    # The SDK would log each failed export and retry. We count them, and log one line when failures begin and one when
    # they end.
    logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)
    exporter = OTLPSpanExporter(endpoint=endpoint.rstrip("/") + PATH, timeout=EXPORT_TIMEOUT_S)
    provider = TracerProvider(
        resource=Resource.create(
            {SERVICE_NAME: service, SERVICE_INSTANCE_ID: instance, SERVICE_VERSION: __version__}, SCHEMA_URL
        ),
        id_generator=GivenIds(),
        shutdown_on_exit=False,
    )
    provider.add_span_processor(_CountingProcessor(_CountingExporter(exporter)))
    try:
        yield Tracing(provider.get_tracer("everturn", __version__, schema_url=SCHEMA_URL))
    finally:
        await asyncio.to_thread(_close, provider, exporter)


def _close(provider: TracerProvider, exporter: SpanExporter) -> None:
    """The SDK would wait half a minute for a collector that does not answer."""
    closing = threading.Thread(target=provider.shutdown, name="traces-close", daemon=True)
    closing.start()
    closing.join(CLOSE_LIMIT_S)
    if closing.is_alive():
        exporter.shutdown()


class GivenIds(RandomIdGenerator):
    """Random ids, except for a span that was given its own."""

    def generate_span_id(self) -> int:
        given = own_context.get()
        return int(given.span_id, 16) if given else super().generate_span_id()

    def generate_trace_id(self) -> int:
        given = own_context.get()
        return int(given.trace_id, 16) if given else super().generate_trace_id()

    def is_trace_id_random(self) -> bool:
        return False


class _CountingProcessor(BatchSpanProcessor):
    """Its queue is bounded; dropped spans are counted neither as sent nor as failed."""

    def on_end(self, span: ReadableSpan) -> None:
        SPANS_ENDED.inc()
        super().on_end(span)


class _CountingExporter(SpanExporter):
    """Counts exported and failed spans, and logs once that the collector is unreachable, and once that it is back."""

    def __init__(self, exporter: SpanExporter) -> None:
        self._exporter = exporter
        self._is_away = False

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        result = self._exporter.export(spans)
        is_away = result is not SpanExportResult.SUCCESS
        SPANS_SENT.labels("failed" if is_away else "ok").inc(len(spans))
        if is_away is not self._is_away:
            self._is_away = is_away
            if is_away:
                _log.warning("Could not send spans to the trace collector")
            else:
                _log.info("Sent spans to the trace collector again")
        return result

    def shutdown(self) -> None:
        self._exporter.shutdown()
