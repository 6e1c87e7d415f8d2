"""Tracing is on where a collector is named, and costs nothing elsewhere."""

import subprocess
import sys

from everturn.core.trace_export import open_tracing
from everturn.core.tracing import NO_TRACING

LOADS_NOTHING = """
import asyncio, sys
from everturn.core.trace_export import open_tracing
async def main():
    async with open_tracing("s", ""):
        pass
asyncio.run(main())
print([name for name in sys.modules if name.startswith(("opentelemetry.sdk", "opentelemetry.exporter"))])
"""


async def test_without_a_collector_nothing_is_made() -> None:
    async with open_tracing("service", "") as tracing:
        assert tracing is NO_TRACING


def test_without_a_collector_the_sdk_is_not_loaded() -> None:
    done = subprocess.run([sys.executable, "-c", LOADS_NOTHING], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "[]"


async def test_a_named_collector_gets_a_tracing_of_its_own() -> None:
    async with open_tracing("service", "http://127.0.0.1:9") as tracing:
        assert tracing is not NO_TRACING
