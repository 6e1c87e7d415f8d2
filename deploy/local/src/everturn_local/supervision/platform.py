"""The whole platform on one machine: servers and services, started in order, kept alive, stopped in reverse."""

import asyncio
import signal
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

from everturn.core.errors import EverturnError
from everturn_local.home import Home, run_lock, save_home, save_secrets, save_signing_secret
from everturn_local.migrations import run_migrations
from everturn_local.ports import LOOPBACK, load_free_port
from everturn_local.processes import Child, Spawn, run_leftover_cleanup
from everturn_local.servers.clamd import ClamdChoice, EmbeddedClamd
from everturn_local.servers.databases import DatabaseUrls, build_urls, save_database, save_roles
from everturn_local.servers.errors import ServerStartError
from everturn_local.servers.postgres import EmbeddedPostgres
from everturn_local.servers.redis import EmbeddedRedis
from everturn_local.settings import load_environment
from everturn_local.supervision.logs import save_rotated
from everturn_local.supervision.parts import Part, ServerPart
from everturn_local.supervision.restarter import run_restarter
from everturn_local.supervision.service import STOP_LIMIT_S, ReadyReport, ServiceProcess, ServiceSpec
from everturn_local.supervision.specs import BROKER, Layout, Surroundings, build_redis_urls, build_specs

BROKER_STOP_S = 15.0
"""A minimum: the broker ends all its pairs concurrently, within a second on an idle machine."""

T = TypeVar("T")
SpecBuilder = Callable[[Surroundings, Layout], list[ServiceSpec]]


class UnknownPart(EverturnError):
    """The platform has no part of this name."""


class NotStarted(EverturnError):
    """The platform was not started."""


class Platform:
    """An async context manager. Parts are named `postgres`, `redis`, `clamd`, `broker`, `ingress-1`..., `worker-1`...

    Only one platform can use a home at a time. `port` is that of the first ingress, 0 for a free one; further ingresses
    get free ports. `env` is added to the environment of every service. With `auto_restart` (can be switched at any
    time) a part that dies is restarted. Start it on the main thread. With a `clamd` that has a program, it scans
    uploads. With `containers` a broker is started, and generated code runs in containers. `specs` defines the services,
    and `spawn` starts their processes.
    """

    def __init__(
        self,
        home: Path,
        *,
        port: int = 0,
        host: str = LOOPBACK,
        ingresses: int = 1,
        workers: int = 2,
        env: Mapping[str, str] | None = None,
        auto_restart: bool = True,
        durable: bool = True,
        containers: bool = False,
        clamd: ClamdChoice | None = None,
        report: Callable[[str], None] = lambda _: None,
        specs: SpecBuilder = build_specs,
        spawn: Spawn = Child,
    ) -> None:
        self.home: Home = save_home(home)
        self.auto_restart = auto_restart
        self._first_port, self._host = port, host
        self._ingresses, self._workers = ingresses, workers
        self._env = {**load_environment(), **(env or {})}
        self._durable = durable
        self._containers = containers
        self._clamd = clamd
        self._clamd_url = ""
        self._report = report
        self._build_specs = specs
        self._spawn = spawn
        self._parts: dict[str, Part] = {}
        self._services: dict[str, ServiceProcess] = {}
        self._restarters: dict[str, asyncio.Task[None]] = {}
        self._restarted: dict[str, asyncio.Event] = {}
        self._held = ExitStack()
        self._postgres: EmbeddedPostgres | None = None
        self._redis: EmbeddedRedis | None = None
        self._database: DatabaseUrls | None = None

    @property
    def postgres(self) -> EmbeddedPostgres:
        return _check_started(self._postgres)

    @property
    def redis(self) -> EmbeddedRedis:
        return _check_started(self._redis)

    @property
    def database(self) -> DatabaseUrls:
        return _check_started(self._database)

    @property
    def reports(self) -> Mapping[str, ReadyReport]:
        """The last ready report of each service."""
        return {name: service.report for name, service in self._services.items()}

    @property
    def urls(self) -> list[str]:
        """The URL of each ingress."""
        return [report["url"] for name, report in self.reports.items() if name.startswith("ingress-")]

    async def start(self) -> None:
        """Start servers, run migrations, start services. On failure stops everything and raises an EverturnError with
        the cause."""
        self._held.enter_context(run_lock(self.home))
        try:
            for name in run_leftover_cleanup(self.home.processes):
                self._report(f"stopped {name}, which an earlier run had left behind")
            await self._start_servers()
            self._report("bringing the database up to date")
            await asyncio.to_thread(run_migrations, self.database.owner, env=self._env)
            await self._start_services()
        except BaseException:
            await self.stop(limit_s=0)
            raise

    async def stop(self, *, limit_s: float = STOP_LIMIT_S) -> None:
        """Stop the services, each with `limit_s` to finish, then the broker, then the servers."""
        await asyncio.gather(*(self._stop_part(name, limit_s) for name in self._services if name != BROKER))
        # Container runs end with the broker, so it stops after the services that wait for them. If killed, it would
        # leave the volumes of its pairs until its next start.
        await self._stop_part(BROKER, max(limit_s, BROKER_STOP_S))
        await asyncio.gather(*(self._stop_part(name, limit_s) for name in self._parts if name not in self._services))
        self._parts.clear()
        self._services.clear()
        self._held.close()

    def kill(self, name: str, sig: signal.Signals = signal.SIGKILL) -> None:
        """Send a signal to one part, without waiting. With `auto_restart` it is restarted when it dies."""
        self._part(name).send(sig)

    async def kill_and_wait(self, name: str, sig: signal.Signals = signal.SIGKILL) -> None:
        """Kill one part and wait until it is restarted. Needs `auto_restart`."""
        restarted = self._restarted.setdefault(name, asyncio.Event())
        restarted.clear()
        self._part(name).send(sig)
        await restarted.wait()

    async def wait_exit(self, name: str) -> int:
        """Wait until the current process of a part has ended; returns its exit code, negative for a signal."""
        return await self._part(name).wait_exit()

    def pid(self, name: str) -> int | None:
        """The pid of a part, None while it isn't running."""
        return self._part(name).pid

    async def stop_part(self, name: str, *, limit_s: float = STOP_LIMIT_S) -> None:
        """Stop one part gracefully; it stays stopped until `restart`."""
        self._part(name)
        await self._stop_part(name, limit_s)

    async def restart(self, name: str, *, extra_env: Mapping[str, str] | None = None) -> None:
        """Stop one part if it runs and start it; returns when it is ready. `extra_env` applies to this process only."""
        part = self._part(name)
        await self._stop_part(name, STOP_LIMIT_S)
        await self._start_part(part, extra_env=extra_env)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    async def _start_servers(self) -> None:
        secrets, logs = save_secrets(self.home), self.home.logs
        postgres_log, redis_log = logs / "postgres.log", logs / "redis.log"
        for log in (postgres_log, redis_log):
            save_rotated(log)
        self._postgres = EmbeddedPostgres(
            self.home.postgres, password=secrets.postgres, log=postgres_log, durable=self._durable
        )
        self._redis = EmbeddedRedis(self.home.redis, password=secrets.redis, log=redis_log, durable=self._durable)
        if not self._postgres.data.exists():
            self._report("creating the database")
        await self._start_part(ServerPart("postgres", self._postgres))
        await self._start_part(ServerPart("redis", self._redis))
        save_roles(self._postgres, secrets)
        save_database(self._postgres)
        self._database = build_urls(self._postgres, secrets)
        await self._start_clamd()

    async def _start_clamd(self) -> None:
        """Start clamd if configured. If it fails, the platform continues: uploads are rejected until it runs."""
        if self._clamd is None or self._clamd.program is None:
            return
        log = self.home.logs / "clamd.log"
        save_rotated(log)
        server = EmbeddedClamd(self.home.clamd, program=self._clamd.program, signatures=self._clamd.signatures, log=log)
        self._clamd_url = server.url
        try:
            await self._start_part(ServerPart("clamd", server))
        except ServerStartError as error:
            self._report(f"uploads are rejected, because clamd did not start: {error}")

    async def _start_services(self) -> None:
        self._report(f"starting {self._ingresses} ingress and {self._workers} workers")
        self._services.update({service.name: service for service in self._build_services()})
        if BROKER in self._services:
            # A worker checks at its start whether code can run.
            await self._start_part(self._services[BROKER])
        try:
            async with asyncio.TaskGroup() as group:
                for service in [service for name, service in self._services.items() if name != BROKER]:
                    group.create_task(self._start_part(service))
        except ExceptionGroup as failures:
            # The first one is the cause; the others were cancelled because of it or report the same.
            raise failures.exceptions[0] from failures

    def _build_services(self) -> list[ServiceProcess]:
        ports = [self._first_port or load_free_port(), *(load_free_port() for _ in range(self._ingresses - 1))]
        around = Surroundings(
            self.home,
            self.database,
            build_redis_urls(self.redis),
            self._env,
            signing_secret=save_signing_secret(self.home),
            clamd_url=self._clamd_url,
        )
        specs = self._build_specs(around, Layout(self._host, ports, self._workers, self._containers))
        return [ServiceProcess(spec, records=self.home.processes, spawn=self._spawn) for spec in specs]

    async def _start_part(self, part: Part, *, extra_env: Mapping[str, str] | None = None) -> None:
        self._parts[part.name] = part
        await part.start(extra_env=extra_env)
        restarted = self._restarted.setdefault(part.name, asyncio.Event())
        restarter = run_restarter(part, is_on=lambda: self.auto_restart, report=self._report, on_restart=restarted.set)
        self._restarters[part.name] = asyncio.create_task(restarter, name=f"keep {part.name}")

    async def _stop_part(self, name: str, limit_s: float) -> None:
        restarter = self._restarters.pop(name, None)
        if restarter is not None:
            restarter.cancel()
            await asyncio.wait([restarter])
        if name in self._parts:
            await self._parts[name].stop(limit_s=limit_s)

    def _part(self, name: str) -> Part:
        try:
            return self._parts[name]
        except KeyError:
            raise UnknownPart(f"{name}; there are {', '.join(self._parts)}") from None


def _check_started(value: T | None) -> T:
    if value is None:
        raise NotStarted
    return value
