"""Whether the parts that the ingress needs answer, and which workers there are."""

import asyncio
from collections.abc import Mapping
from typing import Final, Literal

from pydantic import BaseModel, ConfigDict

from everturn.errors import Unavailable
from everturn.ports.runs.presences import Presences, WorkerPresence
from everturn.telemetry.parts import CHECK_TIMEOUT_S, Part, PartOut, Readiness, check_all, sum_up

KEEP_S: Final = 1.0
"""How old the answer of `/readyz` may be: it needs no credential, so asking often must not be work for what we need."""


class BatteryOut(BaseModel):
    """How many attempts of the escape battery were denied; `at` is when, in seconds since 1970."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    held: int
    total: int
    at: float


class WorkerOut(BaseModel):
    """One worker; `sandbox` is the launcher of its programs, empty if it runs none."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str
    sandbox: str
    battery: BatteryOut | Literal["not run"]
    slots: int


class ReadyOut(BaseModel):
    """`degraded` serves everything that does not need the failing part; `unready` is sent with status 503.

    `workers` lists at most 100, by id, and is null if the list can't be read. Messages are accepted without any.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    status: Readiness
    parts: dict[str, PartOut]
    workers: list[WorkerOut] | None


async def check_parts(parts: Mapping[str, Part], presences: Presences) -> ReadyOut:
    """All parts and all workers at once, each within 3 s."""
    found, workers = await asyncio.gather(check_all(parts), _load_workers(presences))
    return ReadyOut(status=sum_up(parts, found), parts=found, workers=workers)


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
