"""Compares the cost of a text with that of one eight times as long, so that no test depends on the machine's speed."""

import time
from collections.abc import Callable

SMALL_CHARS = 2_000
GROWTH = 8
ALLOWED = 3 * GROWTH
"""Work that grows with the square makes it 64."""
NOISE_S = 0.0005
"""A shorter time says nothing."""


def check_linear(work: Callable[[str], object], build: Callable[[int], str], *, chars: int = SMALL_CHARS) -> None:
    """`build` gives hostile text of about so many characters."""
    small, large = (_measure_s(work, build(count)) for count in (chars, chars * GROWTH))

    assert large <= ALLOWED * max(small, NOISE_S), (
        f"{chars} characters took {small:.4f} s, {GROWTH} times {large:.4f} s"
    )


def repeat(unit: str, *, before: str = "", after: str = "") -> Callable[[int], str]:
    """Builds text that is one unit over and over."""
    return lambda chars: before + unit * (chars // len(unit)) + after


def _measure_s(work: Callable[[str], object], text: str) -> float:
    """The best of three, in time of this thread alone."""
    times: list[float] = []
    for _ in range(3):
        begun_s = time.thread_time()
        work(text)
        times.append(time.thread_time() - begun_s)
    return min(times)
