"""Parts are checked side by side, and what is missing decides by whether it is required."""

import asyncio

import pytest

from everturn.core import readiness
from everturn.core.errors import Unavailable
from everturn.core.readiness import Part, check_all, summarize_readiness


async def fine() -> None:
    return None


async def broken() -> None:
    raise Unavailable("down")


@pytest.mark.parametrize(
    ("needed", "other", "status"),
    [(fine, fine, "ready"), (fine, broken, "degraded"), (broken, fine, "unready"), (broken, broken, "unready")],
)
async def test_a_missing_required_part_decides_readiness(needed, other, status) -> None:
    asked = {"needed": Part(needed, note="here"), "other": Part(other, required=False)}

    found = await check_all(asked)

    assert summarize_readiness(asked, found) == status
    assert found["needed"].detail.endswith("here" if needed is fine else "down")


async def test_parts_are_checked_concurrently_and_independently() -> None:
    met = asyncio.Barrier(2)

    async def meet() -> None:
        await met.wait()

    found = await check_all({"one": Part(meet), "two": Part(meet), "three": Part(broken)})

    assert [out.ok for out in found.values()] == [True, True, False]
    assert readiness.CHECK_TIMEOUT_S < 10
