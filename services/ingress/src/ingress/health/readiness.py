"""Whether the parts that the ingress needs answer."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from pydantic import BaseModel, ConfigDict

from everturn.errors import Unavailable

CHECK_TIMEOUT_S = 3.0


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


class ReadyOut(BaseModel):
    """`degraded` serves what does not need the failing part; `unready` answers 503."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    status: Literal["ready", "degraded", "unready"]
    parts: dict[str, PartOut]


async def check_parts(parts: Mapping[str, Part]) -> ReadyOut:
    """Check all parts at once, each within 3 s."""
    found = dict(zip(parts, await asyncio.gather(*(_check(part) for part in parts.values())), strict=True))
    failing = [name for name, out in found.items() if not out.ok]
    if any(parts[name].required for name in failing):
        return ReadyOut(status="unready", parts=found)
    return ReadyOut(status="degraded" if failing else "ready", parts=found)


async def _check(part: Part) -> PartOut:
    try:
        async with asyncio.timeout(CHECK_TIMEOUT_S):
            await part.check()
    except Unavailable as error:
        return PartOut(ok=False, detail=str(error))
    except TimeoutError:
        return PartOut(ok=False, detail=f"no answer within {CHECK_TIMEOUT_S:g} s")
    return PartOut(ok=True, detail=part.note)
