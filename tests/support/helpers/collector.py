"""An OpenTelemetry collector in the process of a test: takes OTLP over HTTP and keeps the spans as they were sent."""

import gzip
import threading
from collections.abc import Callable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

WAIT_S = 60.0


@dataclass(frozen=True)
class ReportedSpan:
    """One span. Ids are hexadecimal, `parent` is empty for a root."""

    name: str
    trace_id: str
    span_id: str
    parent: str
    links: tuple[tuple[str, str], ...]
    attributes: dict[str, Any]
    service: str
    instance: str
    is_error: bool
    raw: bytes
    lasted_ns: int
    resource: dict[str, Any]
    schema_urls: tuple[str, str]
    """Of the resource, and of the scope."""


class Collector:
    """Serves while the block runs. `status` is what it answers exports with."""

    def __init__(self) -> None:
        self.status = 200
        self.spans: list[ReportedSpan] = []
        self._changed = threading.Condition()
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.headers.get("Content-Encoding") == "gzip":
                    body = gzip.decompress(body)
                if collector.status == 200:
                    assert self.path == "/v1/traces"
                    collector.take(ExportTraceServiceRequest.FromString(body))
                self.send_response(collector.status)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: Any) -> None:
                """Nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def take(self, request: ExportTraceServiceRequest) -> None:
        with self._changed:
            for group in request.resource_spans:
                resource = read_attributes(group.resource.attributes)
                for scope in group.scope_spans:
                    schemas = (group.schema_url, scope.schema_url)
                    self.spans += [read_span(span, resource, schemas) for span in scope.spans]
            self._changed.notify_all()

    def wait_for(self, wanted: Callable[[list[ReportedSpan]], Any], limit_s: float = WAIT_S) -> Any:
        """What `wanted` returns of all spans, once that is something."""
        with self._changed:
            found = self._changed.wait_for(lambda: wanted(self.spans), limit_s)
        assert found, [span.name for span in self.spans]
        return found

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def read_span(span: Span, resource: dict[str, Any], schemas: tuple[str, str]) -> ReportedSpan:
    return ReportedSpan(
        name=span.name,
        trace_id=span.trace_id.hex(),
        span_id=span.span_id.hex(),
        parent=span.parent_span_id.hex(),
        links=tuple((link.trace_id.hex(), link.span_id.hex()) for link in span.links),
        attributes=read_attributes(span.attributes),
        service=resource["service.name"],
        instance=resource["service.instance.id"],
        is_error=span.status.code == Status.STATUS_CODE_ERROR,
        raw=span.SerializeToString(),
        lasted_ns=span.end_time_unix_nano - span.start_time_unix_nano,
        resource=resource,
        schema_urls=schemas,
    )


def read_attributes(pairs: Any) -> dict[str, Any]:
    return {pair.key: getattr(pair.value, pair.value.WhichOneof("value")) for pair in pairs}
