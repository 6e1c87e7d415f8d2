"""One ingress process: `python -m ingress` serves, `python -m ingress COMMAND` runs one of COMMANDS and exits."""

import argparse
import asyncio
import gc
import json
import math
import os
import random
import signal
import socket
import sys
import time
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from functools import partial

import uvicorn
import uvloop
from pydantic import ValidationError

from everturn.core.errors import EverturnError
from everturn.core.logging import configure_logging
from everturn.core.loops import run_guarded
from everturn.core.settings import BadSecrets, explain_errors, load_secrets
from ingress.admission.connections import AddressCounts, ConnectionCaps, bind_protocol
from ingress.app import Parts, build_app
from ingress.bootstrap import (
    load_turn_state,
    load_usage,
    migrate_schema,
    open_operator,
    open_parts,
    open_remains,
    open_rescan,
    open_sweep,
    prepare_server,
)
from ingress.bounds import ADDRESS_PART, BOUNDS, Bounds
from ingress.operations.commands import (
    DESCRIBE,
    AnyCommand,
    Command,
    OfflineCommand,
    build_migrate_command,
    parse_arguments,
)
from ingress.operations.credentials import build_keys_command, build_revoke_user_command
from ingress.operations.data import (
    VERIFY_EXPORT,
    build_rescan_command,
    build_revoke_command,
    build_sweep_command,
    build_usage_command,
    build_verify_erasure,
)
from ingress.operations.explaining import build_explain_command
from ingress.settings import IngressSettings, read_networks
from ingress.sockets.websocket import BoundedWebSocket

KEEP_ALIVE_S = 75
SEND_BUFFER_BYTES = 65_536
"""The kernel buffers (twice) this much of what a client has not read; by default it grows to megabytes per
connection."""
EXIT_SIGNALS = (signal.SIGINT, signal.SIGTERM)

SERVE_HELP = "Serve requests until SIGTERM; the default command."


class DrainingServer(uvicorn.Server):
    """Announces when it listens, and ends open streams before it waits for requests to finish; both together take at
    most `drain_timeout_s` and two seconds."""

    def __init__(
        self,
        config: uvicorn.Config,
        *,
        drain: Callable[[], Awaitable[None]],
        drain_timeout_s: float,
        announce: Callable[[int], None],
    ) -> None:
        super().__init__(config)
        self._drain = drain
        self._drain_timeout_s = drain_timeout_s
        self._announce = announce

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        """Replaces the base class's handler, which kills the process with the signal before anything else is closed."""
        loop = asyncio.get_running_loop()
        for number in EXIT_SIGNALS:
            loop.add_signal_handler(number, self.handle_exit, number, None)
        try:
            yield
        finally:
            for number in EXIT_SIGNALS:
                loop.remove_signal_handler(number)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if not self.should_exit:
            for listening in self.servers[0].sockets:
                # A connection inherits the options of its listening socket.
                listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
            self._announce(self.servers[0].sockets[0].getsockname()[1])

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for server in self.servers:
            server.close()
        began_s = time.monotonic()
        with suppress(TimeoutError):
            async with asyncio.timeout(self._drain_timeout_s):
                await self._drain()
        left_s = max(1.0, self._drain_timeout_s - (time.monotonic() - began_s))
        self.config.timeout_graceful_shutdown = math.ceil(left_s)
        await super().shutdown(sockets)


async def run_ingress(settings: IngressSettings, bounds: Bounds) -> None:
    """Serve until SIGTERM or SIGINT."""
    async with open_parts(settings, bounds) as parts:
        app = build_app(parts)
        # A collection of everything that is loaded by now takes 50 to 100 ms, in which no stream goes on.
        gc.collect()
        gc.freeze()
        config = uvicorn.Config(
            app,
            host=settings.host,
            port=settings.port,
            http=bind_protocol(
                ConnectionCaps(
                    connections=settings.connections_max,
                    headers_s=bounds.headers_s,
                    send_s=bounds.send_s,
                    addresses=AddressCounts(
                        max(1, settings.connections_max // ADDRESS_PART),
                        proxies=read_networks(settings.trusted_proxies),
                    ),
                ),
                parts.metrics,
            ),
            ws=BoundedWebSocket,
            ws_max_size=settings.message_max_bytes,
            ws_per_message_deflate=False,
            ws_ping_interval=None,
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=bool(settings.trusted_proxies),
            forwarded_allow_ips=settings.trusted_proxies,
            server_header=False,
            timeout_keep_alive=KEEP_ALIVE_S,
        )

        async def drain() -> None:
            app.state.hub.drain()
            await app.state.sockets.drain(random.random)

        server = DrainingServer(
            config,
            drain=drain,
            drain_timeout_s=settings.drain_timeout_s,
            announce=lambda port: announce_ready(settings, parts, port),
        )
        async with asyncio.TaskGroup() as group:
            hub = group.create_task(run_guarded("hub", app.state.hub.run))
            await server.serve()
            hub.cancel()


def announce_ready(settings: IngressSettings, parts: Parts, port: int) -> None:
    """Write one JSON line to READY_FD: the URL, and which antivirus was chosen and why."""
    if settings.ready_fd is None:
        return
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    ready = {
        "ready": True,
        "url": f"http://{host}:{port}",
        "antivirus": parts.antivirus.name,
        "antivirus_why": parts.antivirus.why,
    }
    with os.fdopen(settings.ready_fd, "w", closefd=True) as pipe:
        pipe.write(json.dumps(ready) + "\n")


async def run_serve(settings: IngressSettings, _: argparse.Namespace, *, bounds: Bounds = BOUNDS) -> int:
    """The default command."""
    await run_ingress(settings, bounds)
    return 0


COMMANDS: dict[str, AnyCommand] = {
    "serve": Command(SERVE_HELP, run_serve),
    "describe": DESCRIBE,
    "verify-export": VERIFY_EXPORT,
    "migrate": build_migrate_command(prepare_server, migrate_schema),
    "verify-erasure": build_verify_erasure(open_remains),
    "sweep-objects": build_sweep_command(open_sweep),
    "keys": build_keys_command(open_operator),
    "usage": build_usage_command(load_usage),
    "revoke-user": build_revoke_user_command(open_operator),
    "explain-turn": build_explain_command(load_turn_state),
    "rescan": build_rescan_command(open_rescan),
    "revoke": build_revoke_command(open_rescan),
}


def main(arguments: Sequence[str], *, bounds: Bounds = BOUNDS) -> int:
    """Return the exit status: 2 for invalid settings or arguments, 1 for a command that failed."""
    serve = Command(SERVE_HELP, partial(run_serve, bounds=bounds))
    command, read = parse_arguments({**COMMANDS, "serve": serve}, arguments, default="serve")
    try:
        load_secrets()
        if isinstance(command, OfflineCommand):
            return command.run(read)
    except EverturnError as error:
        sys.stderr.write(f"{read.program}: {error}\n")
        return 2 if isinstance(error, BadSecrets) else 1
    try:
        settings = IngressSettings()  # pyright: ignore[reportCallIssue] required settings come from the environment
    except ValidationError as error:
        sys.stderr.writelines(f"{read.program}: {line}\n" for line in explain_errors(error))
        return 2
    configure_logging(settings.log_level, settings.log_format)
    try:
        return uvloop.run(command.run(settings, read))
    except EverturnError as error:
        sys.stderr.write(f"{read.program}: {error}\n")
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
