"""A platform whose Postgres has a synchronous standby, which takes its place when the primary's machine is lost."""

import asyncio
import os
import signal
import subprocess
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

from helpers.waiting import wait_until

from everturn_local.home import load_secrets
from everturn_local.ports import LOOPBACK, save_port
from everturn_local.privileges import build_server_prefix
from everturn_local.servers.databases import DatabaseUrls, build_urls
from everturn_local.servers.postgres import EmbeddedPostgres, load_postgres_binary, save_server_folder
from everturn_local.supervision.platform import Platform
from everturn_local.supervision.service import ServiceSpec
from everturn_local.supervision.specs import Layout, Surroundings
from faults.links import Links
from faults.proxy import FaultProxy

STANDBY = "standby"
COPY_LIMIT_S = 60.0
KNOWS_BOTH = ("ingress-2", "worker-2")
"""Services whose address names both servers and asks for the one that can be written. The others' addresses are moved,
as a proxy or a name that follows the primary does."""


class ReplicatedPlatform(Platform):
    """`postgres` and `database` are the standby's once it was promoted."""

    def __init__(self, home: Path, *, links: Links, **settings: Any) -> None:
        super().__init__(home, specs=self._build_specs, **settings)
        self._links = links
        self._promoted = False
        self.to_replica = FaultProxy()
        """What the primary writes goes to the standby through it."""

    @cached_property
    def replica(self) -> EmbeddedPostgres:
        log = self.home.logs / f"{STANDBY}.log"
        return EmbeddedPostgres(self.home.root / STANDBY, password=load_secrets(self.home).postgres, log=log)

    @property
    def postgres(self) -> EmbeddedPostgres:
        return self.replica if self._promoted else super().postgres

    @property
    def database(self) -> DatabaseUrls:
        return build_urls(self.postgres, load_secrets(self.home))

    async def __aenter__(self) -> Self:
        await super().__aenter__()
        self.to_replica.target = LOOPBACK, self.postgres.port
        await self.to_replica.start()
        await asyncio.to_thread(self._start_replica)
        await wait_until(lambda: self.postgres.run_sql("SELECT sync_state FROM pg_stat_replication") == "sync")
        return self

    async def stop(self, **limits: float) -> None:
        await super().stop(**limits)
        await self.to_replica.stop()
        await asyncio.to_thread(self.replica.stop)

    async def lose_primary(self) -> None:
        """Kill the server with all its sessions. It stays away."""
        self.auto_restart = False
        sessions = load_children(self.pid("postgres"))
        self.kill("postgres")
        for session in sessions:
            with suppress(ProcessLookupError):
                os.kill(session, signal.SIGKILL)
        await self.wait_exit("postgres")
        await self.stop_part("postgres")
        self.to_replica.refuse()
        self.auto_restart = True

    async def promote(self) -> None:
        """Make the standby the primary, and let the services find it."""
        promoted = await asyncio.to_thread(self.replica.run_sql, "SELECT pg_promote()")
        assert promoted == "t"
        self._promoted = True
        for (service, server), link in self._links.between.items():
            if server == "postgres" and service not in KNOWS_BOTH:
                link.target = LOOPBACK, self.replica.port
                link.cut()

    def _start_replica(self) -> None:
        """A copy of the running primary, which from then on commits nothing that the copy does not have."""
        save_server_folder(self.replica.folder)
        url = urlsplit(self.postgres.superuser_url(""))
        place = f"{url.netloc.rpartition(':')[0]}:{self.to_replica.port}"
        through = url._replace(netloc=place, query=f"application_name={STANDBY}").geturl()
        save_base_backup(through, self.replica.data, "-R")
        self.replica.start()
        self.postgres.run_sql(f"ALTER SYSTEM SET synchronous_standby_names = '{STANDBY}';\nSELECT pg_reload_conf();")

    def _build_specs(self, around: Surroundings, layout: Layout) -> list[ServiceSpec]:
        save_server_folder(self.replica.folder)
        port = save_port(self.replica.folder / "port")
        return [_add_host(spec, port) for spec in self._links.build_specs(around, layout)]


def load_children(pid: int | None) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _add_host(spec: ServiceSpec, port: int) -> ServiceSpec:
    if spec.name not in KNOWS_BOTH:
        return spec
    url = urlsplit(spec.env["DATABASE_URL"])
    both = url._replace(netloc=f"{url.netloc},{LOOPBACK}:{port}", query="target_session_attrs=read-write")
    return replace(spec, env={**spec.env, "DATABASE_URL": both.geturl()})


def save_base_backup(url: str, folder: Path, *options: str) -> None:
    """Copy a running server into a folder, which must be empty or absent and which the servers' user can write to."""
    program = load_postgres_binary().with_name("pg_basebackup")
    done = subprocess.run(
        [
            *build_server_prefix(death_signal="KILL", reaches=[program, folder]),
            *(str(program), "-D", str(folder), "-d", url, "-X", "stream", "--checkpoint=fast", "--no-sync", *options),
        ],
        env={"PATH": os.defpath, "LC_ALL": "C.UTF-8"},
        capture_output=True,
        text=True,
        timeout=COPY_LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
