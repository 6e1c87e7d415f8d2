"""Health for whoever runs the service: alive, ready, and in numbers."""

from typing import Any, cast

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response
from prometheus_client import CONTENT_TYPE_LATEST, REGISTRY, generate_latest
from pydantic import BaseModel, ConfigDict

from everturn.telemetry.kept import Kept
from ingress.admission.metrics import IngressMetrics
from ingress.health.queue_watch import QueueWatch
from ingress.health.readiness import ReadyOut

router = APIRouter(tags=["health"])
_METRICS: dict[str, Any] = {
    "description": "Prometheus text.",
    "content": {"text/plain": {"schema": {"type": "string"}}},
}


class HealthOut(BaseModel):
    """The process responds."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    status: str = "ok"


@router.get("/healthz")
async def get_health() -> HealthOut:
    """Whether this process responds."""
    return HealthOut()


@router.get(
    "/readyz", response_model=ReadyOut, responses={503: {"model": ReadyOut, "description": "A part is missing."}}
)
async def get_readiness(request: Request) -> Response:
    """Whether this process can serve requests, part by part, and the live workers; up to a second old."""
    found = await cast(Kept[ReadyOut], request.app.state.readiness).load()
    return JSONResponse(found.model_dump(), status_code=503 if found.status == "unready" else 200)


@router.get("/metrics", response_class=Response, responses={200: _METRICS})
async def get_metrics(request: Request) -> Response:
    """Metrics for Prometheus; docs/metrics.md lists them."""
    metrics = cast(IngressMetrics, request.app.state.metrics)
    await cast(QueueWatch, request.app.state.queue_watch).look()
    ready = await cast(Kept[ReadyOut], request.app.state.readiness).load()
    for name, part in ready.parts.items():
        metrics.part_ready.labels(name).set(part.ok)
    numbers = generate_latest(metrics.registry) + generate_latest(REGISTRY)
    return Response(numbers, media_type=CONTENT_TYPE_LATEST)
