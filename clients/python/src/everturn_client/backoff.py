"""How long to wait before trying again."""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Timings:
    """Limits of waiting, in seconds. `silence_s` must be above the server's heartbeat of 10 s."""

    connect_s: float = 5.0
    answer_s: float = 60.0
    silence_s: float = 30.0
    first_delay_s: float = 0.25
    max_delay_s: float = 10.0
    attempts: int = 4
    """How often one request is sent at most."""
    reconnect_s: float = 0.0
    """How long one request is sent again, beyond `attempts`, while the server can't be reached, as in a restart."""
    give_up_s: float = 120.0
    """How long nothing at all may come from the server, over all connections of a stream."""
    max_server_delay_s: float = 30.0
    """What a server asks for in Retry-After and the like is cut to this."""


class Backoff:
    """Delays that double up to a cap, with full jitter; `random` gives numbers from 0 to 1."""

    def __init__(self, timings: Timings, random: Callable[[], float]) -> None:
        self._timings = timings
        self._random = random
        self._failures = 0

    def reset(self) -> None:
        """Something went well."""
        self._failures = 0

    def next_delay_s(self, asked_s: float | None = None) -> float:
        """The next delay; what the server asked for is honoured, with a little jitter on top."""
        longest = min(self._timings.max_delay_s, self._timings.first_delay_s * 2.0 ** min(self._failures, 30))
        self._failures += 1
        if asked_s is not None:
            return min(asked_s, self._timings.max_server_delay_s) + self._random() * self._timings.first_delay_s
        return longest * (0.5 + self._random() / 2)
