"""Assembles the broker and serves until SIGTERM; only this process has the address of the engine.

It writes one line of JSON to stdout when it serves; its log goes to stderr.
"""

import asyncio
import contextlib
import json
import logging
import signal
import sys
from collections.abc import AsyncGenerator, Coroutine
from functools import partial
from typing import Final
from urllib.parse import urlsplit

import structlog
from prometheus_client import CollectorRegistry
from pydantic import ValidationError

from everturn.core.errors import Conflict, Invalid
from everturn.core.logging import configure_logging
from everturn.core.loops import run_guarded
from everturn.core.metrics import LOOP_ERRORS
from everturn.core.page_server import build_metrics_page, open_page_server
from everturn.core.settings import METRICS_LISTEN, explain_errors, split_address
from everturn.execution.messages import parse_uid_range
from everturn.execution.profiles import load_profiles
from exec_supervisor.broker.connection import BrokerConnection
from exec_supervisor.broker.dial_port import open_dial_port
from exec_supervisor.broker.docker_engine import DockerEngine
from exec_supervisor.broker.docker_pairs import DockerPairs
from exec_supervisor.broker.engine import PairEngine
from exec_supervisor.broker.events import EventWatch
from exec_supervisor.broker.identity import hold_identity
from exec_supervisor.broker.kubernetes_api import ClusterAccess, KubernetesApi
from exec_supervisor.broker.kubernetes_bodies import PodOptions
from exec_supervisor.broker.kubernetes_pairs import KubernetesPairs
from exec_supervisor.broker.listeners import Addresses, open_listeners
from exec_supervisor.broker.metrics import BrokerMetrics
from exec_supervisor.broker.pairs import open_pairs
from exec_supervisor.broker.placement import parse_node_selector, parse_tolerations
from exec_supervisor.broker.pool import Pool, check_warm_fits
from exec_supervisor.broker.reaper import Reaper
from exec_supervisor.broker.settings import BrokerSettings

_log = structlog.stdlib.get_logger()

MORE_CONNECTIONS: Final = 64
"""In addition to one connection per pair and one more to query it."""

_WRONG_USE: Final = 2


def main() -> int:
    """Return the exit code of `python -m exec_supervisor broker`: 2 if the settings don't allow a start."""
    code = 0
    try:
        settings = BrokerSettings()
        configure_logging(settings.log_level, settings.log_format)
        asyncio.run(run_broker(settings))
    except* (ValidationError, Invalid, Conflict) as refused:
        sys.stderr.writelines(f"broker: {line}\n" for line in _explain(_first(refused)))
        code = _WRONG_USE
    return code


def _explain(refused: Exception) -> list[str]:
    return explain_errors(refused) if isinstance(refused, ValidationError) else [str(refused)]


def _first(group: BaseExceptionGroup[Exception]) -> Exception:
    found = group.exceptions[0]
    return _first(found) if isinstance(found, BaseExceptionGroup) else found


async def run_broker(settings: BrokerSettings) -> None:
    """Serve until SIGTERM or SIGINT; then end every pair. Raises Invalid, SocketTaken, CantListen, OSError."""
    stop = _handle_signals()
    profiles = load_profiles(settings.profiles)
    check_warm_fits(profiles, settings.max_pairs)
    registry = CollectorRegistry()
    metrics = BrokerMetrics(registry)
    registry.register(LOOP_ERRORS)
    with hold_identity(settings.socket) as broker_id:
        connected = asyncio.Event()
        # Events are processed until the last pair has ended, and pairs end after the last connection.
        async with (
            _open_engine(settings, broker_id) as engine,
            _metrics_page(settings.metrics_listen, registry) as page,
            _watching(engine, connected) as watch,
            open_pairs(
                engine,
                watch,
                profiles,
                max_pairs=settings.max_pairs,
                uids=parse_uid_range(settings.uids),
                metrics=metrics,
            ) as pairs,
        ):
            pool = Pool(pairs, profiles, metrics)
            reaper = Reaper(engine, pairs, metrics, connected=connected)

            async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                await BrokerConnection(pairs, pool, reader, writer).run()

            async with (
                _running(run_guarded("reaper", reaper.run), run_guarded("pool", pool.run)),
                open_listeners(settings, serve, max_connections=2 * settings.max_pairs + MORE_CONNECTIONS) as addresses,
            ):
                report_ready(addresses, broker_id, page)
                await stop.wait()
                _log.info("Stopping the broker")


@contextlib.asynccontextmanager
async def _open_engine(settings: BrokerSettings, broker_id: str) -> AsyncGenerator[PairEngine]:
    """The driver that the settings choose. Raises Invalid, OSError."""
    if settings.engine == "docker":
        with contextlib.closing(DockerEngine(settings.docker_host)) as docker:
            yield DockerPairs(docker, broker_id, settings.layout)
        return
    if settings.log_level != "debug":
        # One line for each request, several for each pair.
        logging.getLogger("httpx2").setLevel(logging.WARNING)
    access = ClusterAccess(settings.kubernetes_api, settings.kubernetes_account_dir, settings.kubernetes_namespace)
    options = PodOptions(
        seccomp=settings.kubernetes_seccomp,
        runtime_class=settings.kubernetes_runtime_class,
        owner_name=settings.pod_name,
        owner_uid=settings.pod_uid,
        node_selector=parse_node_selector(settings.kubernetes_node_selector),
        tolerations=parse_tolerations(settings.kubernetes_tolerations),
        priority_class=settings.kubernetes_priority_class,
    )
    async with (
        open_dial_port(settings.dial, settings.max_pairs) as port,
        contextlib.aclosing(KubernetesApi(access)) as api,
    ):
        yield KubernetesPairs(api, port, broker_id, options)


@contextlib.asynccontextmanager
async def _watching(engine: PairEngine, connected: asyncio.Event) -> AsyncGenerator[EventWatch]:
    """Process the events of the engine during the block."""
    watch = EventWatch(engine, connected)
    async with _running(run_guarded("engine_events", watch.run)):
        yield watch


def report_ready(addresses: Addresses, broker_id: str, metrics: str) -> None:
    """Announce to the parent process that callers are served."""
    ready = {
        "ready": True,
        "socket": addresses.socket,
        "tcp": addresses.tcp,
        "metrics": metrics,
        "broker": broker_id,
    }
    sys.stdout.write(json.dumps(ready) + "\n")
    sys.stdout.flush()


@contextlib.asynccontextmanager
async def _running(*lifetimes: Coroutine[None, None, None]) -> AsyncGenerator[None]:
    """Run tasks during the block and cancel them at its end; one that fails ends the block."""
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(lifetime) for lifetime in lifetimes]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()


@contextlib.asynccontextmanager
async def _metrics_page(address: str, registry: CollectorRegistry) -> AsyncGenerator[str]:
    """Serve the metrics if an address is given; yields the actual address. Raises CantListen."""
    if not address:
        yield ""
        return
    host, port = split_address(address)
    pages = {"/metrics": partial(build_metrics_page, registry)}
    async with open_page_server(host, port, pages, setting=METRICS_LISTEN) as url:
        yield urlsplit(url).netloc


def _handle_signals() -> asyncio.Event:
    """An event that is set when this process must end. Installed first: the process can be ended as soon as it is
    ready."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    return stop
