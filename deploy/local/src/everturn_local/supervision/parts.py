"""The interface of a supervised part, a server or a service, and servers as such parts."""

import asyncio
import signal
from collections.abc import Mapping
from typing import Protocol

from everturn_local.processes import Child


class Part(Protocol):
    """A process that can be started and stopped any number of times."""

    @property
    def name(self) -> str: ...

    @property
    def pid(self) -> int | None:
        """None while it isn't running."""
        ...

    async def start(self, *, extra_env: Mapping[str, str] | None = None) -> object:
        """Start and return when it is ready; raises an EverturnError with the cause."""
        ...

    async def wait_exit(self) -> int:
        """Wait for its exit code, negative for a signal. Returns that of its last process at once if it isn't
        running."""
        ...

    async def stop(self, *, limit_s: float = ...) -> None: ...

    def send(self, sig: signal.Signals) -> None: ...


class Server(Protocol):
    """An embedded server."""

    @property
    def child(self) -> Child | None: ...

    def start(self) -> None: ...
    def stop(self) -> None: ...
    def kill(self, sig: signal.Signals = ...) -> None: ...


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
