"""What the escape battery plants outside of the sandbox, so that there is something to be found."""

import asyncio
import contextlib
import os
import secrets
import socket
import tempfile
from collections.abc import AsyncGenerator, Generator
from pathlib import Path
from typing import Final

from chat_proc.sandbox.battery.trials import GRANTED_TOOL
from chat_proc.sandbox.probes.attempts import Surroundings

_VARIABLE: Final = "EVERTURN_BATTERY_CANARY"
_ENGINE_SOCKETS: Final = (
    *("/var/run/docker.sock", "/run/docker.sock", "/run/containerd/containerd.sock", "/run/podman/podman.sock"),
    *("/run/everturn/broker.sock", "/run/dbus/system_bus_socket", "/run/systemd/private"),
)


@contextlib.asynccontextmanager
async def open_surroundings(port: int) -> AsyncGenerator[Surroundings]:
    """A secret in our environment and in a file that everybody may read, and a listening abstract socket.

    `port` is of a server that runs on this machine. The nonces are not known yet.
    """
    canary, abstract = secrets.token_hex(16), f"everturn-battery-{secrets.token_hex(8)}"
    with _environment(canary), _readable_file(canary) as file, socket.socket(socket.AF_UNIX) as listener:
        listener.bind("\0" + abstract)
        listener.setblocking(False)
        server = await asyncio.start_unix_server(lambda _, writer: writer.close(), sock=listener)
        async with server:
            yield Surroundings(
                canary=canary,
                neighbour=secrets.token_hex(16),
                port=port,
                abstract=abstract,
                host_file=str(file),
                engine_sockets=_ENGINE_SOCKETS,
                granted=GRANTED_TOOL,
                nonces=(),
            )


@contextlib.contextmanager
def _environment(canary: str) -> Generator[None]:
    os.environ[_VARIABLE] = canary
    try:
        yield
    finally:
        os.environ.pop(_VARIABLE, None)


@contextlib.contextmanager
def _readable_file(canary: str) -> Generator[Path]:
    with tempfile.TemporaryDirectory(prefix="everturn-battery-") as folder:
        os.chmod(folder, 0o755)  # noqa: S103 - nothing but the sandbox's walls may keep it from a program
        file = Path(folder) / "canary"
        file.write_text(canary, encoding="ascii")
        file.chmod(0o644)
        yield file
