"""Whether this process tells of itself as spans: only where a collector is named."""

import contextlib
import importlib
import os
import socket
from collections.abc import AsyncGenerator

from everturn.telemetry.tracing.spans import NO_TRACING, Tracing

DRIVER = "everturn.telemetry.tracing.otlp"


@contextlib.asynccontextmanager
async def open_tracing(service: str, endpoint: str) -> AsyncGenerator[Tracing]:
    """Tracing to the OTLP collector at this URL while the block runs; an empty one is none, and loads nothing."""
    if not endpoint:
        yield NO_TRACING
        return
    instance = f"{socket.gethostname()}:{os.getpid()}"
    async with importlib.import_module(DRIVER).open_otlp_tracing(service, instance, endpoint) as tracing:
        yield tracing
