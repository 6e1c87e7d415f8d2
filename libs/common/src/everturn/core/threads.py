"""Keeps work that takes more than a few milliseconds of CPU off the event loop."""

import asyncio
from collections.abc import Callable
from typing import Final, TypeVar

Result = TypeVar("Result")

ON_LOOP_BYTES: Final = 64 * 1024
"""Parsing this much JSON takes 0.5 ms, rendering it up to 4 ms. Below that, a thread would only add its own 0.1 ms."""


async def call_sized(size_bytes: int, build: Callable[[], Result]) -> Result:
    """The result of a call that takes time in proportion to `size_bytes` of input; from a thread if there is much."""
    return build() if size_bytes <= ON_LOOP_BYTES else await asyncio.to_thread(build)
