"""Tracing that keeps its spans, as they were begun and what they were told."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from everturn.core.tracing import Attributes, NoTracing, Span, SpanKind, SpanPlace, TraceContext


@dataclass
class KeptSpan:
    name: str
    kind: SpanKind
    place: SpanPlace
    attributes: dict[str, object]
    failed: str = ""
    inside: "KeptSpan | None" = None

    def note(self, attributes: Attributes) -> None:
        self.attributes.update(attributes)

    def rename(self, name: str) -> None:
        self.name = name

    def fail(self, why: str) -> None:
        self.failed = why


@dataclass
class KeptTracing(NoTracing):
    """`own` is what `current` tells; `inside` is the one that was open, in the order of a single task."""

    own: TraceContext | None = None
    spans: list[KeptSpan] = field(default_factory=list)
    _open: list[KeptSpan] = field(default_factory=list)

    @contextmanager
    def span(
        self, name: str, attributes: Attributes, *, kind: SpanKind = "internal", place: SpanPlace | None = None
    ) -> Iterator[Span]:
        kept = KeptSpan(
            name, kind, place or SpanPlace(), dict(attributes), inside=self._open[-1] if self._open else None
        )
        self.spans.append(kept)
        self._open.append(kept)
        try:
            yield kept
        except BaseException as error:
            kept.fail(type(error).__name__)
            raise
        finally:
            self._open.remove(kept)

    def current(self) -> TraceContext | None:
        return self.own
