"""A platform whose files are in a bucket, and whose Redis can get a replica that takes its place."""

import asyncio
from pathlib import Path
from typing import Any, cast

from helpers.s3 import BUCKET, KEYS, run_rclone
from helpers.waiting import wait_until
from redis import Redis

from everturn_local.home import load_secrets
from everturn_local.ports import LOOPBACK
from everturn_local.servers.redis import EmbeddedRedis
from everturn_local.supervision.platform import Platform
from faults.links import Links
from faults.proxy import FaultProxy

PREFIX = "files"


class OutagePlatform(Platform):
    """`redis` is the current primary. `join` gives it a replica, which `promote` or `switch` makes the primary."""

    def __init__(self, home: Path, *, links: Links, **settings: Any) -> None:
        super().__init__(home, specs=links.build_specs, auto_restart=False, **settings)
        self._links = links
        self._servers: list[EmbeddedRedis] = []
        self.to_replica, self.to_s3 = FaultProxy(), FaultProxy()
        """What the primary writes goes to the replica through the one, and files to the bucket through the other."""

    @property
    def redis(self) -> EmbeddedRedis:
        return self._servers[0] if self._servers else super().redis

    async def start(self) -> None:
        await self.to_replica.start()
        await self.to_s3.start()
        self.s3 = self._held.enter_context(run_rclone(self.home.root / "bucket"))
        self.to_s3.target = LOOPBACK, int(self.s3.endpoint.rpartition(":")[2])
        url = self.s3.url(PREFIX, endpoint=f"http://{LOOPBACK}:{self.to_s3.port}", timeout="3")
        self._env = {**self._env, **KEYS, "OBJECTS_URL": url}
        await super().start()
        self._servers = [super().redis]

    async def stop(self, **limits: float) -> None:
        await super().stop(**limits)
        await self.to_replica.stop()
        await self.to_s3.stop()
        for server in self._servers:
            await asyncio.to_thread(server.stop)

    async def join(self) -> None:
        """Returns once a new replica has all that the primary has."""
        for left in self._servers[1:]:
            await asyncio.to_thread(left.stop)
        folder = self.home.root / f"redis-{len(list(self.home.root.glob('redis-*')))}"
        log = self.home.logs / f"{folder.name}.log"
        replica = EmbeddedRedis(folder, password=load_secrets(self.home).redis, log=log)
        await asyncio.to_thread(replica.start)
        self._servers = [self.redis, replica]
        self.to_replica.target = LOOPBACK, self.redis.port
        self.to_replica.heal(cut=True)
        with Redis.from_url(replica.url, decode_responses=True) as client:
            client.config_set("masterauth", load_secrets(self.home).redis)
            client.execute_command("REPLICAOF", LOOPBACK, self.to_replica.port)
            await wait_until(lambda: cast(Any, client).execute_command("ROLE")[3] == "connected")

    async def lose_primary(self) -> None:
        """Kill it. It stays away."""
        child = self.redis.child
        assert child is not None
        self.redis.kill()
        await child.wait_exit()

    async def promote(self, *, empty: bool = False) -> None:
        """Make the replica the primary, at the address that the services have. `empty`: it holds nothing."""
        former, replica = self._servers
        with Redis.from_url(replica.url) as client:
            client.execute_command("REPLICAOF", "NO", "ONE")
        if empty:
            replica.empty()
        self._move([replica, former])
        for link in self._links.of("redis"):
            link.cut()

    async def switch(self) -> None:
        """Let the two change places without losing a write. The services' connections to the former primary stay
        open."""
        former, replica = self._servers
        with Redis.from_url(former.url) as before, Redis.from_url(replica.url, decode_responses=True) as after:
            before.config_set("masterauth", load_secrets(self.home).redis)
            before.execute_command("FAILOVER")
            await wait_until(lambda: cast(Any, after).execute_command("ROLE")[0] == "master")
        self._move([replica, former])

    def _move(self, servers: list[EmbeddedRedis]) -> None:
        """New connections lead to the first."""
        self._servers = servers
        for link in self._links.of("redis"):
            link.target = LOOPBACK, self.redis.port

    def load_keys(self) -> set[str]:
        """What is in the bucket, without the manifests of rounds."""
        pages = self.s3.client().get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix=f"{PREFIX}/")
        keys = {row["Key"].removeprefix(f"{PREFIX}/") for page in pages for row in page.get("Contents", [])}
        return {key for key in keys if "/manifests/" not in key}
