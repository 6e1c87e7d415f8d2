"""Plays all cases of one row against the same server."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable

CASE_LIMIT_S = 60


async def play(cases: Iterable[str], ask: Callable[[str], Awaitable[None]], *, at_once: int = 4) -> None:
    """Try every case, a few at a time, even after one failed; all failed cases are reported together by name."""
    gate = asyncio.Semaphore(at_once)

    async def ask_one(case: str) -> str | None:
        async with gate:
            try:
                async with asyncio.timeout(CASE_LIMIT_S):
                    await ask(case)
            except (AssertionError, OSError, LookupError, ValueError, TypeError) as error:
                return f"{case}: {type(error).__name__} {str(error)[:1000]}"
        return None

    results = await asyncio.gather(*map(ask_one, cases))
    wrong = [each for each in results if each is not None]
    assert not wrong, f"{len(wrong)} of {len(results)} cases:\n" + "\n".join(wrong)
