"""Health for operators: liveness, readiness and metrics."""

import asyncio
import math
from collections.abc import Callable, Mapping
from typing import Any, Final, Literal, cast

import structlog
from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response
from prometheus_client import CONTENT_TYPE_LATEST, REGISTRY, generate_latest

from everturn.core.api_model import ApiModel
from everturn.core.errors import NotFound, Unavailable
from everturn.core.identity import Lane
from everturn.core.readiness import CHECK_TIMEOUT_S, Part, PartOut, Readiness, check_all, summarize_readiness
from everturn.core.ttl_cache import TtlCache
from everturn.queue.model import Presences, Queue, WorkerPresence
from ingress.metrics import IngressMetrics
from ingress.openapi.responses import problems

_log = structlog.get_logger(__name__)

KEEP_S: Final = 5.0
"""The maximum age of the numbers: `/metrics` needs no credential, so frequent reads must not cause work."""
LIMIT_S: Final = 2.0

READINESS_KEEP_S: Final = 1.0
"""The maximum age of `/readyz`: it needs no credential, so frequent requests must not load the checked parts."""

_FORWARDING: Final = ("forwarded", "x-forwarded-for")
"""Headers that proxies add. Not every proxy can close a path, so the metrics don't leave through any."""

router = APIRouter(tags=["health"])
_METRICS: dict[str, Any] = {
    "description": "Prometheus text.",
    "content": {"text/plain": {"schema": {"type": "string"}}},
}


class QueueWatch:
    """Sets the gauges of the queue. While it can't be counted they have no value instead of an old one."""

    def __init__(self, queue: Queue, metrics: IngressMetrics, *, monotonic: Callable[[], float]) -> None:
        self._queue = queue
        self._metrics = metrics
        self._monotonic = monotonic
        self._updated_at = -math.inf
        self._update_lock = asyncio.Lock()

    async def update_gauges(self) -> None:
        """Count the queue and set the gauges. Takes at most two seconds."""
        async with self._update_lock:
            if self._monotonic() - self._updated_at <= KEEP_S:
                return
            self._updated_at = self._monotonic()
            self._metrics.queued.clear()
            self._metrics.oldest_queued.clear()
            try:
                async with asyncio.timeout(LIMIT_S):
                    lanes = await self._queue.load_lanes()
            except (Unavailable, TimeoutError) as error:
                _log.warning("Could not count the queue", error=str(error))
                return
            for lane in (lane for lane in Lane if lane is not Lane.CONTROL):
                self._metrics.queued.labels(lane.value).set(lanes[lane].waiting if lane in lanes else 0)
                self._metrics.oldest_queued.labels(lane.value).set(lanes[lane].oldest_s if lane in lanes else 0.0)


class BatteryOut(ApiModel):
    """How many attempts of the escape battery were denied; `at` is when, in seconds since 1970."""

    held: int
    """How many attempts were denied."""
    total: int
    """How many attempts there were."""
    at: float
    """The time, in seconds since 1970."""


class WorkerOut(ApiModel):
    """One worker; `sandbox` is the launcher of its programs, empty if it runs none."""

    id: str
    """The worker's id."""
    sandbox: str
    """How the worker runs programs; empty where it runs none."""
    battery: BatteryOut | Literal["not run"]
    """The result of the escape battery on the sandbox."""
    slots: int
    """Its ordinary slots. It runs up to twice as many turns, because it has as many extra ones."""


class ReadyOut(ApiModel):
    """`degraded` serves everything that does not need the failing part; `unready` is sent with status 503.

    `workers` lists at most 100, by id, and is null if the list can't be read. Messages are accepted even if there are
    no workers.
    """

    status: Readiness
    """Whether this server can do all of its work, a part of it, or none."""
    parts: dict[str, PartOut]
    """Each component that the server needs, by name."""
    workers: list[WorkerOut] | None
    """The live workers."""


async def check_parts(parts: Mapping[str, Part], presences: Presences) -> ReadyOut:
    """Check all parts and workers concurrently, each within 3 s."""
    found, workers = await asyncio.gather(check_all(parts), _load_workers(presences))
    return ReadyOut(status=summarize_readiness(parts, found), parts=found, workers=workers)


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


class HealthOut(ApiModel):
    """The process responds."""

    status: str = "ok"
    """Always `ok`."""


@router.get("/healthz")
async def get_health() -> HealthOut:
    """Whether this process responds."""
    return HealthOut()


@router.get(
    "/readyz", response_model=ReadyOut, responses={503: {"model": ReadyOut, "description": "A part is not available."}}
)
async def get_readiness(request: Request) -> Response:
    """Whether this process can serve requests, part by part, and the live workers; up to a second old."""
    found = await cast(TtlCache[ReadyOut], request.app.state.readiness).load()
    return JSONResponse(found.model_dump(), status_code=503 if found.status == "unready" else 200)


@router.get("/metrics", response_class=Response, responses={200: _METRICS, 404: problems()[404]})
async def get_metrics(request: Request) -> Response:
    """Metrics for Prometheus; docs/metrics.md lists them. Requests that a proxy has forwarded get 404."""
    if any(name in request.headers for name in _FORWARDING):
        raise NotFound("A proxy has forwarded this request, and metrics are not for its clients.")
    metrics = cast(IngressMetrics, request.app.state.metrics)
    await cast(QueueWatch, request.app.state.queue_watch).update_gauges()
    ready = await cast(TtlCache[ReadyOut], request.app.state.readiness).load()
    for name, part in ready.parts.items():
        metrics.part_ready.labels(name).set(part.ok)
    # In a thread: many labels take tens of milliseconds.
    numbers = await asyncio.to_thread(lambda: generate_latest(metrics.registry) + generate_latest(REGISTRY))
    return Response(numbers, media_type=CONTENT_TYPE_LATEST)
