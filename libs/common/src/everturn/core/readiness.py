"""The dependencies of a process and their checks, which determine its readiness."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Final, Literal

from everturn.core.api_model import ApiModel
from everturn.core.errors import Unavailable

CHECK_TIMEOUT_S: Final = 3.0

Readiness = Literal["ready", "degraded", "unready"]
"""`degraded` does everything that does not need the failing part."""


@dataclass(frozen=True, slots=True)
class Part:
    """A dependency. Nothing works without a required one; some things don't work without an optional one."""

    check: Callable[[], Awaitable[None]]
    required: bool = True
    note: str = ""


class PartOut(ApiModel):
    """The state of a part."""

    ok: bool
    """Whether it responds."""
    detail: str = ""
    """What is wrong; empty if nothing is."""


async def check_all(parts: Mapping[str, Part]) -> dict[str, PartOut]:
    """Check all parts at once, each within 3 s."""
    answers = await asyncio.gather(*(_check(part) for part in parts.values()))
    return dict(zip(parts, answers, strict=True))


def summarize_readiness(parts: Mapping[str, Part], found: Mapping[str, PartOut]) -> Readiness:
    """The readiness that follows from these results."""
    failing = [name for name, out in found.items() if not out.ok]
    if any(parts[name].required for name in failing):
        return "unready"
    return "degraded" if failing else "ready"


async def _check(part: Part) -> PartOut:
    try:
        async with asyncio.timeout(CHECK_TIMEOUT_S):
            await part.check()
    except Unavailable as error:
        return PartOut(ok=False, detail=str(error))
    except TimeoutError:
        return PartOut(ok=False, detail=f"no answer within {CHECK_TIMEOUT_S:g} s")
    return PartOut(ok=True, detail=part.note)
