"""The delays between attempts."""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Timings:
    """Time limits, in seconds. `silence_s` must be above the server's heartbeat of 10 s."""

    connect_s: float = 5.0
    answer_s: float = 60.0
    silence_s: float = 30.0
    first_delay_s: float = 0.25
    max_delay_s: float = 10.0
    attempts: int = 4
    """The maximum number of attempts per request."""
    reconnect_s: float = 0.0
    """How long one request is retried, beyond `attempts`, while the server can't be reached, as in a restart."""
    give_up_s: float = 120.0
    """The maximum time without any data from the server, over all connections of a stream."""
    max_server_delay_s: float = 30.0
    """The cap for delays that a server requests, as in Retry-After."""


class Backoff:
    """Delays that double up to a cap, with full jitter; `random` returns numbers from 0 to 1."""

    def __init__(self, timings: Timings, random: Callable[[], float]) -> None:
        self._timings = timings
        self._random = random
        self._failures = 0

    def reset(self) -> None:
        """Start again at the first delay, after a success."""
        self._failures = 0

    def next_delay_s(self, asked_s: float | None = None) -> float:
        """The next delay. A delay requested by the server is honoured, with a little jitter on top."""
        longest = min(self._timings.max_delay_s, self._timings.first_delay_s * 2.0 ** min(self._failures, 30))
        self._failures += 1
        if asked_s is not None:
            return min(asked_s, self._timings.max_server_delay_s) + self._random() * self._timings.first_delay_s
        return longest * (0.5 + self._random() / 2)
