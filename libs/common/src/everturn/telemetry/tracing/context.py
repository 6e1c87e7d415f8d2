"""Where in a trace something belongs, as W3C Trace Context writes it, and the ids that a turn's spans have."""

import hashlib
import re
from dataclasses import dataclass
from typing import Final

_TRACEPARENT: Final = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?", re.ASCII)
_SAMPLED: Final = 0x01


@dataclass(frozen=True, slots=True)
class TraceContext:
    """A span of a trace: 32 and 16 hexadecimal digits, neither all zero."""

    trace_id: str
    span_id: str
    sampled: bool = True

    def __str__(self) -> str:
        """The header `traceparent`."""
        return f"00-{self.trace_id}-{self.span_id}-{int(self.sampled):02x}"


def try_parse_context(header: str | None) -> TraceContext | None:
    """Read a `traceparent`, of later versions too; None for what is none: nobody's request fails over it."""
    found = _TRACEPARENT.fullmatch(header) if header and len(header) <= 512 else None
    if found is None:
        return None
    version, trace_id, span_id, flags, more = found.groups()
    if version == "ff" or (version == "00" and more) or not int(trace_id, 16) or not int(span_id, 16):
        return None
    return TraceContext(trace_id, span_id, bool(int(flags, 16) & _SAMPLED))


def build_turn_context(turn_id: str, fence: int, request: TraceContext | None) -> TraceContext:
    """The span of a turn's work under one lease. It follows from the ids, so that the worker that takes a turn over can
    name the span of the one before it, which may have died untold. Without a `request` the turn is a trace of its own.
    """
    digest = hashlib.sha256(f"{turn_id}:{fence}".encode()).hexdigest()
    trace_id = request.trace_id if request else hashlib.sha256(turn_id.encode()).hexdigest()[:32]
    return TraceContext(trace_id, digest[:16], sampled=request.sampled if request else True)
