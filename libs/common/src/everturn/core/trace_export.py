"""Whether this process exports spans: only if a collector is configured."""

import contextlib
import os
import socket
from collections.abc import AsyncGenerator

from everturn.core.tracing import NO_TRACING, Tracing


@contextlib.asynccontextmanager
async def open_tracing(service: str, endpoint: str) -> AsyncGenerator[Tracing]:
    """Tracing to the OTLP collector at this URL while the block runs; an empty URL disables it and imports no SDK."""
    if not endpoint:
        yield NO_TRACING
        return
    # Costs time and memory that a process without a collector should not spend.
    from everturn.core.otlp import open_otlp_tracing

    instance = f"{socket.gethostname()}:{os.getpid()}"
    async with open_otlp_tracing(service, instance, endpoint) as tracing:
        yield tracing
