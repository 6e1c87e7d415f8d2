"""A cluster of one node with its API over TLS, in a thread, for drivers in this process and brokers beside it.

It needs root and bubblewrap: containers have users of their own.
"""

import asyncio
import os
import shutil
import socket
import threading
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, Self, TypeVar

import pytest
import uvicorn

from exec_supervisor.broker.dial_port import build_certificate, build_server_context
from exec_supervisor.broker.kubernetes_api import ClusterAccess
from kubernetes_cluster.api import NAMESPACE, TOKEN, Json, PodsApp, PodStore
from kubernetes_cluster.node import Node

LIMIT_S = 30.0

ResultT = TypeVar("ResultT")


class Cluster:
    """A context manager; all calls block. `access` is a broker's."""

    def __init__(self, folder: Path) -> None:
        if os.geteuid() or not shutil.which("bwrap"):
            leave_out = pytest.fail if os.environ.get("CI") == "true" else pytest.skip
            leave_out("the containers of a Pod need root and bubblewrap here")
        self._certificate = build_certificate("localhost")
        for name, text in (
            ("ca.crt", self._certificate.pem),
            ("token", TOKEN.encode()),
            ("namespace", NAMESPACE.encode()),
        ):
            (folder / name).write_bytes(text)
        with socket.create_server(("127.0.0.1", 0)) as chosen:
            self._port = chosen.getsockname()[1]
        self.access = ClusterAccess(f"https://localhost:{self._port}", folder)
        self.settings = {
            "BROKER_ENGINE": "kubernetes",
            "BROKER_DIAL": "127.0.0.1:0",
            "KUBERNETES_API": self.access.url,
            "KUBERNETES_ACCOUNT_DIR": str(folder),
        }
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="cluster")
        self._server: Any = None

    def __enter__(self) -> Self:
        self._thread.start()
        self.call(self._open())
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.call(self._close())
        self.stop()
        self.node.close()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(LIMIT_S)
        self._loop.close()

    def call(self, awaited: Coroutine[Any, Any, ResultT]) -> ResultT:
        """Run a coroutine in the cluster's loop."""
        return asyncio.run_coroutine_threadsafe(awaited, self._loop).result(LIMIT_S)

    def start(self) -> None:
        """Let the API answer."""
        self.call(self._serve())

    def stop(self) -> None:
        """Let nobody reach the API; the Pods go on."""
        self.call(self._stop())

    @property
    def pods(self) -> list[Json]:
        return [*self.store.pods.values()]

    def find_pod(self, pair: str) -> Json:
        return self.store.pods[f"everturn-run-{pair}"]

    def kill(self, pair: str, container: str = "executor", reason: str = "Error") -> None:
        async def kill() -> None:
            self.node.kill(f"everturn-run-{pair}", container, reason)

        self.call(kill())

    def delete(self, pair: str, *, forget: bool = False) -> None:
        """Somebody else deletes a Pod; with `forget`, no watch reports it."""
        self.call(self.api.remove(f"everturn-run-{pair}", forget=forget))

    def compact(self) -> None:
        async def compact() -> None:
            self.store.compact()

        self.call(compact())

    def hang_up(self) -> None:
        """Cut all watches in the middle of a line."""

        async def hang_up() -> None:
            self.api.hang_ups += 1
            self.store.changed.set()
            self.store.changed = asyncio.Event()

        self.call(hang_up())

    async def _open(self) -> None:
        self.store = PodStore()
        self.node = Node(self._report)
        self.api = PodsApp(self.store, self.node.begin, self.node.end)

    async def _close(self) -> None:
        for name in [*self.node.running, *self.store.pods]:
            await self.node.end(name)

    def _report(self, name: str, phase: str, statuses: list[Json], conditions: list[Json]) -> None:
        if pod := self.store.pods.get(name):
            pod["status"] = {"phase": phase, "containerStatuses": [*statuses], "conditions": conditions}
            self.store.save("MODIFIED", pod)

    async def _serve(self) -> None:
        context = build_server_context(self._certificate)
        self._server = uvicorn.Server(
            uvicorn.Config(
                self.api.app,
                port=self._port,
                log_config=None,
                lifespan="off",
                ws="none",
                ssl_context_factory=lambda *_: context,
            )
        )
        self._serving = asyncio.get_running_loop().create_task(self._server.serve())
        while not self._server.started:  # noqa: ASYNC110 - it sends no notification
            await asyncio.sleep(0.01)

    async def _stop(self) -> None:
        self._server.should_exit = self._server.force_exit = True
        for connection in [*self._server.server_state.connections]:
            connection.transport.abort()
        await self._serving
