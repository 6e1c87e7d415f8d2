"""Cases of slow tests."""

import os
from collections.abc import Sequence
from itertools import islice
from typing import TypeVar

Case = TypeVar("Case")

CASES = 2


def choose(cases: Sequence[Case]) -> Sequence[Case]:
    """All with SLOW=1, otherwise two of them, spread evenly."""
    step = max(1, len(cases) // CASES)
    return cases if os.environ.get("SLOW") else list(islice(cases, 0, step * CASES, step))
