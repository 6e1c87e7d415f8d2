"""A real PgBouncer in session mode before a Postgres server."""

import os
import shutil
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


@contextmanager
def run_pgbouncer(url: str) -> Iterator[str]:
    """The same URL through a pooler with one connection to the server. Skips where there is none, and fails in CI."""
    program = shutil.which("pgbouncer", path=f"{os.environ['PATH']}:/usr/sbin")
    if program is None:
        refuse = pytest.fail if os.environ.get("CI") else pytest.skip
        refuse("there is no pgbouncer: install the package pgbouncer")
    server, port = urlsplit(url), load_free_port()
    folder = Path(tempfile.mkdtemp(prefix="everturn-pgbouncer-"))
    folder.chmod(0o755)
    settings = {
        "listen_addr": LOOPBACK,
        "listen_port": str(port),
        "unix_socket_dir": "",
        "auth_type": "scram-sha-256",
        "auth_file": str(folder / "users.txt"),
        "pool_mode": "session",
        "default_pool_size": "1",
        "logfile": str(folder / "run" / "log"),
    }
    target = f"[databases]\n* = host={server.hostname} port={server.port}\n[pgbouncer]\n"
    (folder / "users.txt").write_text(f'"{server.username}" "{server.password}"\n')
    (folder / "settings.ini").write_text(target + "".join(f"{key} = {value}\n" for key, value in settings.items()))
    save_server_folder(folder / "run")
    prefix = build_server_prefix(death_signal="KILL", reaches=[Path(program), folder / "settings.ini"])
    process = subprocess.Popen([*prefix, program, "--quiet", str(folder / "settings.ini")])
    try:
        _wait_listening(process, port)
        yield server._replace(netloc=f"{server.netloc.rpartition(':')[0]}:{port}").geturl()
    finally:
        process.kill()
        process.wait()
        shutil.rmtree(folder)


def _wait_listening(process: subprocess.Popen[bytes], port: int) -> None:
    deadline = time.monotonic() + READY_LIMIT_S
    while process.poll() is None and time.monotonic() < deadline:
        with socket.socket() as probe:
            if probe.connect_ex((LOOPBACK, port)) == 0:
                return
        time.sleep(POLL_S)
    raise AssertionError("pgbouncer does not listen")
