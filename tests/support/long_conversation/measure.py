"""What the requests of a long session are held to: their size, and how much of each a provider finds in its cache."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import zip_longest

from everturn.models.port import ModelRequest, TextPart


@dataclass(frozen=True, slots=True)
class Sample:
    """What a turn cost: CPU of the whole process, and its peak memory so far."""

    cpu_s: float
    memory_bytes: int


@dataclass(slots=True)
class RequestMeter:
    """`breaks` counts the declared changes of what was sent before; it is asked at every request."""

    breaks: Callable[[], float]
    requests: int = 0
    most_chars: int = 0
    sent_chars: int = 0
    """Of the requests that had one before them and no declared break in between."""
    kept_chars: int = 0
    """What of those was the beginning of the request before, unchanged."""
    declared: int = 0
    _last: tuple[str, ...] = ()
    _last_breaks: float = 0.0

    def take(self, request: ModelRequest) -> None:
        texts = tuple(part.text for message in request.messages for part in message.parts if isinstance(part, TextPart))
        chars = sum(map(len, texts))
        self.requests += 1
        self.most_chars = max(self.most_chars, chars)
        breaks = self.breaks()
        if breaks != self._last_breaks:
            self.declared += 1
        elif self._last:
            self.sent_chars += sum(map(len, self._last))
            self.kept_chars += _count_kept(self._last, texts)
        self._last, self._last_breaks = texts, breaks

    @property
    def kept_share(self) -> float:
        """The share of what was sent that the next request began with."""
        return self.kept_chars / max(1, self.sent_chars)


def _count_kept(before: tuple[str, ...], after: tuple[str, ...]) -> int:
    kept = 0
    for old, new in zip_longest(before, after, fillvalue=""):
        if old is not new and old != new:
            return kept + _count_common(old, new)
        kept += len(old)
    return kept


def _count_common(old: str, new: str) -> int:
    low, high = 0, min(len(old), len(new))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if old[:middle] == new[:middle] else (low, middle - 1)
    return low
