"""The delay before a dead part is restarted."""

from collections.abc import Sequence

WINDOW_S = 60.0
FIRST_DELAY_S = 0.2
MAX_DELAY_S = 10.0


def build_restart_delay_s(deaths: Sequence[float], now: float) -> float:
    """`deaths` are times (seconds) up to and including this one. The delay doubles with every death of the last minute.

    The limit bounds a part that can't start to six attempts a minute.
    """
    recent = sum(1 for death in deaths if now - death < WINDOW_S)
    return min(MAX_DELAY_S, FIRST_DELAY_S * 2 ** (recent - 1)) if recent else 0.0
