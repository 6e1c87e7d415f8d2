"""The parts that are supervised: services, and embedded servers."""

import asyncio
import signal
from collections.abc import Mapping

from everturn_local.servers.clamd import EmbeddedClamd
from everturn_local.servers.postgres import EmbeddedPostgres
from everturn_local.servers.redis import EmbeddedRedis
from everturn_local.supervision.service import ServiceProcess

Server = EmbeddedPostgres | EmbeddedRedis | EmbeddedClamd


class ServerPart:
    """An embedded server as a part; it ignores `extra_env`.

    It starts on the calling thread, in less than a second; clamd takes a little longer.
    """

    def __init__(self, name: str, server: Server) -> None:
        self.name = name
        self._server = server

    @property
    def pid(self) -> int | None:
        child = self._server.child
        return child.pid if child is not None and child.exit_code is None else None

    async def start(self, *, extra_env: Mapping[str, str] | None = None) -> None:
        self._server.start()

    async def wait_exit(self) -> int:
        child = self._server.child
        return 0 if child is None else await child.wait_exit()

    async def stop(self, *, limit_s: float = 0.0) -> None:
        """Stop in a thread; the servers have time limits of their own."""
        await asyncio.to_thread(self._server.stop)

    def send(self, sig: signal.Signals) -> None:
        self._server.kill(sig)


Part = ServiceProcess | ServerPart
"""What can be started and stopped any number of times."""
