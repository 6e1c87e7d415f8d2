"""A real PgBouncer in session mode before a Postgres server."""

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from everturn_local.ports import LOOPBACK, load_free_port
from everturn_local.privileges import build_server_prefix
from everturn_local.servers.postgres import save_server_folder

READY_LIMIT_S = 20.0
POLL_S = 0.02
CLIENTS = 300


class PgBouncer:
    """Owns the process; `start` and `kill` can alternate, on the same port."""

    def __init__(self, program: Path, folder: Path, urls: tuple[str, ...], connections: int) -> None:
        server, self.port = urlsplit(urls[0]), load_free_port()
        self._program, self._folder = program, folder
        self._process: subprocess.Popen[bytes] | None = None
        settings = {
            "listen_addr": LOOPBACK,
            "listen_port": str(self.port),
            "unix_socket_dir": "",
            "auth_type": "scram-sha-256",
            "auth_file": str(folder / "users.txt"),
            "pool_mode": "session",
            "default_pool_size": str(connections),
            "max_client_conn": str(CLIENTS),
            "logfile": str(folder / "run" / "log"),
        }
        roles = [(role.username, role.password) for role in map(urlsplit, urls)]
        target = f"[databases]\n* = host={server.hostname} port={server.port}\n[pgbouncer]\n"
        (folder / "users.txt").write_text("".join(f'"{name}" "{password}"\n' for name, password in roles))
        (folder / "settings.ini").write_text(target + "".join(f"{key} = {value}\n" for key, value in settings.items()))
        save_server_folder(folder / "run")

    def start(self) -> None:
        """Returns when it listens."""
        settings = self._folder / "settings.ini"
        prefix = build_server_prefix(death_signal="KILL", reaches=[self._program, settings])
        self._process = subprocess.Popen([*prefix, self._program, "--quiet", settings])
        _wait_listening(self._process, self.port)

    def reload(self) -> None:
        """As RELOAD on its console does."""
        assert self._process is not None
        self._process.send_signal(signal.SIGHUP)

    def kill(self) -> None:
        """All its connections end with it."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()


@contextmanager
def open_pgbouncer(*urls: str, connections: int = 1) -> Iterator[PgBouncer]:
    """Before the server of these URLs, for their roles, with so many connections for each. Skips where there is none,
    and fails in CI."""
    program = shutil.which("pgbouncer", path=f"{os.environ['PATH']}:/usr/sbin")
    if program is None:
        refuse = pytest.fail if os.environ.get("CI") else pytest.skip
        refuse("there is no pgbouncer: install the package pgbouncer")
    folder = Path(tempfile.mkdtemp(prefix="everturn-pgbouncer-"))
    folder.chmod(0o755)
    bouncer = PgBouncer(Path(program), folder, urls, connections)
    try:
        bouncer.start()
        yield bouncer
    finally:
        bouncer.kill()
        shutil.rmtree(folder)


@contextmanager
def run_pgbouncer(url: str) -> Iterator[str]:
    """The same URL through a pooler with one connection to the server."""
    server = urlsplit(url)
    with open_pgbouncer(url) as bouncer:
        yield server._replace(netloc=f"{server.netloc.rpartition(':')[0]}:{bouncer.port}").geturl()


def _wait_listening(process: subprocess.Popen[bytes], port: int) -> None:
    deadline = time.monotonic() + READY_LIMIT_S
    while process.poll() is None and time.monotonic() < deadline:
        with socket.socket() as probe:
            if probe.connect_ex((LOOPBACK, port)) == 0:
                return
        time.sleep(POLL_S)
    raise AssertionError("pgbouncer does not listen")
