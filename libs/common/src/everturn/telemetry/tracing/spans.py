"""What code tells of itself as spans. Without a collector nothing is made, and only a caller's trace is passed on."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from contextvars import ContextVar, Token
from dataclasses import dataclass
from types import TracebackType
from typing import Literal, Protocol

from everturn.telemetry.tracing.context import TraceContext

Attributes = Mapping[str, str | int | float | bool | Sequence[str]]
"""Names are OpenTelemetry's where it has one, else `everturn.<what>`. Never what people or models wrote."""
SpanKind = Literal["internal", "server", "client"]


@dataclass(frozen=True, slots=True)
class SpanPlace:
    """Where a span stands when that does not follow from the code around it. `own` is the ids it is to have."""

    parent: TraceContext | None = None
    own: TraceContext | None = None
    link: TraceContext | None = None


class Span(Protocol):
    """One span while it lasts."""

    def note(self, attributes: Attributes) -> None: ...

    def rename(self, name: str) -> None: ...

    def fail(self, why: str) -> None:
        """It ended badly; `why` is a short word of a bounded set."""
        ...


class Tracing(Protocol):
    """Makes spans. One that begins inside another, in this task or in one that it started, is its child."""

    def span(
        self, name: str, attributes: Attributes, *, kind: SpanKind = "internal", place: SpanPlace | None = None
    ) -> AbstractContextManager[Span]:
        """A span from the block's beginning to its end. An exception that leaves the block makes it fail."""
        ...

    def tell(self, name: str, attributes: Attributes, *, lasted_s: float) -> None:
        """A span that has just ended, of something that could not tell of itself."""
        ...

    def current(self) -> TraceContext | None:
        """The span around the caller; where none are made, that of whoever called this process."""
        ...


_passed_on: ContextVar[TraceContext | None] = ContextVar("everturn_trace", default=None)


class _NoSpan:
    """Nothing is kept."""

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
