"""Whether the parts that the ingress needs answer, and which workers there are."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from pydantic import BaseModel, ConfigDict

from everturn.errors import Unavailable
from everturn.ports.runs.presences import Presences, WorkerPresence

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


class BatteryOut(BaseModel):
    """How many attempts of the escape battery were denied; `at` is when, in seconds since 1970."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    held: int
    total: int
    at: float


class WorkerOut(BaseModel):
    """One worker; `sandbox` is the launcher of its programs, empty where it runs none."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str
    sandbox: str
    battery: BatteryOut | Literal["not run"]
    slots: int


class ReadyOut(BaseModel):
    """`degraded` serves what does not need the failing part; `unready` answers 503.

    `workers` has at most 100, by id, and is null where they can't be asked for. Messages are taken without any.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    status: Literal["ready", "degraded", "unready"]
    parts: dict[str, PartOut]
    workers: list[WorkerOut] | None


async def check_parts(parts: Mapping[str, Part], presences: Presences) -> ReadyOut:
    """Check all parts at once, each within 3 s."""
    checks = asyncio.gather(*(_check(part) for part in parts.values()))
    answers, workers = await asyncio.gather(checks, _load_workers(presences))
    found = dict(zip(parts, answers, strict=True))
    failing = [name for name, out in found.items() if not out.ok]
    if any(parts[name].required for name in failing):
        return ReadyOut(status="unready", parts=found, workers=workers)
    return ReadyOut(status="degraded" if failing else "ready", parts=found, workers=workers)


async def _load_workers(presences: Presences) -> list[WorkerOut] | None:
    try:
        async with asyncio.timeout(CHECK_TIMEOUT_S):
            return [_build_worker(presence) for presence in await presences.load_all()]
    except (Unavailable, TimeoutError):
        return None


def _build_worker(presence: WorkerPresence) -> WorkerOut:
    tried = presence.battery
    battery = "not run" if tried is None else BatteryOut(held=tried.held, total=tried.total, at=tried.at)
    return WorkerOut(id=presence.worker_id, sandbox=presence.sandbox, battery=battery, slots=presence.slots)


async def _check(part: Part) -> PartOut:
    try:
        async with asyncio.timeout(CHECK_TIMEOUT_S):
            await part.check()
    except Unavailable as error:
        return PartOut(ok=False, detail=str(error))
    except TimeoutError:
        return PartOut(ok=False, detail=f"no answer within {CHECK_TIMEOUT_S:g} s")
    return PartOut(ok=True, detail=part.note)
