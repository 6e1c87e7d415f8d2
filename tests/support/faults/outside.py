"""A platform whose model, antivirus and object store are real servers behind fault proxies."""

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from clamd_server import ClamdServer
from helpers.forks import WORKER_BOUNDS, ForkingSpawn
from helpers.homes import copy_home
from helpers.provider import Answer, Received, WireProvider, build_openai_events, run_provider
from helpers.s3 import KEYS, S3Server, run_rclone
from platform_harness.harness import Harness

from everturn_local.ports import LOOPBACK, load_free_port
from everturn_local.supervision.platform import Platform
from faults.proxy import FaultProxy

PREFIX = "files"
MAX_TITLE_TOKENS = 1_024
"""The call for a conversation's title asks for less than any round does."""


@dataclass(frozen=True, slots=True)
class Outside:
    """`clamd` and `s3` are the servers themselves; the proxies stand before them and before `provider`."""

    harness: Harness
    provider: WireProvider
    clamd: ClamdServer
    s3: S3Server
    to_model: FaultProxy
    to_clamd: FaultProxy
    to_s3: FaultProxy

    def heal(self) -> None:
        for proxy in (self.to_model, self.to_clamd, self.to_s3):
            proxy.heal(cut=True)


@asynccontextmanager
async def open_outside(folder: Path, fallback: Path) -> AsyncGenerator[Outside]:
    """Two ingresses and one worker. `fallback` is the file of the scripted model that answers for a failed provider."""
    async with AsyncExitStack() as stack:
        clamd, to_clamd = await _open_clamd(stack, folder)
        s3 = stack.enter_context(run_rclone(folder / "bucket"))
        to_s3 = await _open_proxy(stack, s3.endpoint)
        provider = await stack.enter_async_context(run_provider(WireProvider(_choose_title)))
        to_model = await _open_proxy(stack, provider.url)
        env = {
            "EVERTURN_MODEL": "openai:stand-in",
            "OPENAI_API_KEY": "none",
            "OPENAI_BASE_URL": f"http://{LOOPBACK}:{to_model.port}/v1",
            "EVERTURN_FALLBACK_MODEL": f"scripted:{fallback}",
            "CLAMD_URL": f"tcp://{LOOPBACK}:{to_clamd.port}",
            "APP_AV_SCAN": "1",
            "OBJECTS_URL": s3.url(PREFIX, endpoint=f"http://{LOOPBACK}:{to_s3.port}", timeout="3"),
            WORKER_BOUNDS: '{"lease_s": 3, "orphans_after_s": 4}',
            **KEYS,
        }
        platform = Platform(
            copy_home(folder / "home"), ingresses=2, workers=1, env=env, durable=False, spawn=ForkingSpawn()
        )
        harness = Harness(await stack.enter_async_context(platform))
        stack.push_async_callback(harness.quit)
        yield Outside(harness, provider, clamd, s3, to_model, to_clamd, to_s3)


async def _open_clamd(stack: AsyncExitStack, folder: Path) -> tuple[ClamdServer, FaultProxy]:
    home, port = folder / "clamd", load_free_port()
    home.mkdir()
    server = ClamdServer(home, TCPSocket=str(port), TCPAddr=LOOPBACK).start()
    stack.callback(server.kill)
    return server, await _open_proxy(stack, f"tcp://{LOOPBACK}:{port}")


async def _open_proxy(stack: AsyncExitStack, url: str) -> FaultProxy:
    address = urlsplit(url)
    assert address.hostname is not None
    assert address.port is not None
    proxy = FaultProxy((address.hostname, address.port))
    await proxy.start()
    stack.push_async_callback(proxy.stop)
    return proxy


def _choose_title(received: Received) -> Answer | None:
    is_title = received.body.get("max_tokens") == MAX_TITLE_TOKENS
    return Answer([event.encode() for event in build_openai_events("A conversation")]) if is_title else None
