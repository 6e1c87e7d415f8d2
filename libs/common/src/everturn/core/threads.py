"""Keeps work that takes more than a few milliseconds of CPU off the event loop."""

import asyncio
from collections.abc import Callable
from typing import Final, TypeVar

Result = TypeVar("Result")

ON_LOOP_SIZE: Final = 64 * 1024
"""In bytes or characters. Parsing this much JSON takes 0.5 ms, rendering it up to 4 ms. Below that, a thread would only
add its own 0.1 ms."""


async def call_sized(size: int, build: Callable[[], Result]) -> Result:
    """The result of a call that takes time in proportion to the `size` of its input; from a thread if that is large."""
    return build() if size <= ON_LOOP_SIZE else await asyncio.to_thread(build)
