"""How long the turns of this worker take: a mean in which the last ones count most."""

WEIGHT = 0.1
"""Of the newest turn; the last ten make up two thirds of the mean."""


class Pace:
    """Told of every turn that ended; what it knows goes into the worker's presence."""

    def __init__(self) -> None:
        self._turn_s: float | None = None

    @property
    def turn_s(self) -> float | None:
        """Seconds; None before the first turn has ended."""
        return self._turn_s

    def note(self, seconds: float) -> None:
        """A turn has ended after so long."""
        old = seconds if self._turn_s is None else self._turn_s
        self._turn_s = old + WEIGHT * (seconds - old)
