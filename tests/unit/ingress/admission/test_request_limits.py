"""The limits follow from the mode and the settings."""

from typing import Any

import pytest
from starlette.requests import HTTPConnection

from everturn.core.identity import Principal
from everturn_testing.core import FixedClock
from everturn_testing.limits.token_buckets import MemoryTokenBuckets
from ingress.admission.limits import DRAWN_KEY, build_request_limits
from ingress.metrics import IngressMetrics
from ingress.settings import IngressSettings


async def call(mode: str, **more: Any) -> dict[str, Any]:
    """The scope of one call after it was admitted."""
    urls = {"database_url": "postgresql://x", "redis_url": "redis://x", "objects_url": "file:///x"}
    settings = IngressSettings.model_construct(None, mode=mode, **urls, **more)
    clock = FixedClock()
    buckets = MemoryTokenBuckets(monotonic=clock.monotonic)
    front = build_request_limits(
        settings, buckets, bad_credentials=None, metrics=IngressMetrics(), monotonic=clock.monotonic
    )
    scope: dict[str, Any] = {"type": "http", "client": ("10.0.0.1", 1), "headers": []}
    await front.admit(HTTPConnection(scope), Principal("t", "p", "u"), write=True)
    return scope


async def test_in_production_there_are_limits_without_a_setting() -> None:
    assert DRAWN_KEY in await call("production")


async def test_in_development_only_those_that_are_set() -> None:
    assert DRAWN_KEY not in await call("development")
    assert DRAWN_KEY in await call("development", rate_limits_writes="registered=5/min")


@pytest.mark.parametrize("mode", ["production", "development"])
async def test_off_limits_nobody(mode: str) -> None:
    assert DRAWN_KEY not in await call(mode, rate_limits_writes="off")
