"""The parts that a process needs, and whether they answer: what its readiness is made of."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Final, Literal

from pydantic import BaseModel, ConfigDict

from everturn.errors import Unavailable

CHECK_TIMEOUT_S: Final = 3.0

Readiness = Literal["ready", "degraded", "unready"]
"""`degraded` does what does not need the failing part."""


@dataclass(frozen=True, slots=True)
class Part:
    """Something we depend on. Without a required one nothing works; without another one less works."""

    check: Callable[[], Awaitable[None]]
    required: bool = True
    note: str = ""


class PartOut(BaseModel):
    """How a part is."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    ok: bool
    detail: str = ""


async def check_all(parts: Mapping[str, Part]) -> dict[str, PartOut]:
    """Check all parts at once, each within 3 s."""
    answers = await asyncio.gather(*(_check(part) for part in parts.values()))
    return dict(zip(parts, answers, strict=True))


def sum_up(parts: Mapping[str, Part], found: Mapping[str, PartOut]) -> Readiness:
    """What these answers mean for the process."""
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
