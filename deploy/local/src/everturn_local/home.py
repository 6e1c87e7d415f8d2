"""Owns the folder EVERTURN_HOME: its layout, its permissions, and the generated passwords."""

import fcntl
import json
import os
import secrets
import shutil
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from everturn.core.errors import EverturnError
from everturn_local.privileges import SERVER_UID, is_root

PASSWORD_BYTES = 24
SIGNING_BYTES = 32


class HomeInUseError(EverturnError):
    """Another run uses this EVERTURN_HOME."""


class HomeUnusableError(EverturnError):
    """EVERTURN_HOME can't be used."""


class HomeDamagedError(EverturnError):
    """A file in EVERTURN_HOME can't be read."""


@dataclass(frozen=True, slots=True)
class Secrets:
    """Generated passwords; hexadecimal, so that they need no quoting in a URL or in SQL."""

    postgres: str
    everturn_owner: str
    everturn_ingress: str
    everturn_worker: str
    redis: str


@dataclass(frozen=True, slots=True)
class Home:
    """The layout of EVERTURN_HOME. `root` is absolute."""

    root: Path

    @property
    def postgres(self) -> Path:
        return self.root / "postgres"

    @property
    def redis(self) -> Path:
        return self.root / "redis"

    @property
    def objects(self) -> Path:
        return self.root / "objects"

    @property
    def logs(self) -> Path:
        return self.root / "logs"

    @property
    def sockets(self) -> Path:
        return self.root / "sockets"

    @property
    def broker_socket(self) -> Path:
        """The socket of the broker for container runs. A socket's path can have at most 107 bytes."""
        return self.sockets / "broker.sock"

    @property
    def processes(self) -> Path:
        """Records of started processes, with which a later start finds what a killed run left."""
        return self.root / "processes"

    @property
    def secrets_file(self) -> Path:
        return self.root / "secrets.json"

    @property
    def clamd(self) -> Path:
        return self.root / "clamd"

    @property
    def bundles(self) -> Path:
        """Bundles of the operator, who creates the folder; nothing here deletes it."""
        return self.root / "bundles"

    @property
    def bundle_environments(self) -> Path:
        """The Python environments of bundles, which workers create."""
        return self.root / "environments"

    @property
    def signing_secret_file(self) -> Path:
        """The secret that seals tickets and guest tokens; stored, so that they survive a restart."""
        return self.root / "signing-secret"

    @property
    def lock_file(self) -> Path:
        return self.root / "run.lock"

    @property
    def objects_url(self) -> str:
        return self.objects.as_uri()


def save_home(root: Path) -> Home:
    """Create missing folders and set their modes: no other user can enter.

    For root the server's own group can traverse the top folder, because Postgres refuses to run as root. Raises
    HomeUnusableError.
    """
    home = Home(root.absolute())
    try:
        home.root.mkdir(parents=True, exist_ok=True)
        others = {path.name for path in home.root.iterdir()} - {home.bundles.name}
        is_ours = home.processes.is_dir() or not others
    except OSError as error:
        raise HomeUnusableError(f"{home.root}: {error.strerror}. Set EVERTURN_HOME to another folder.") from error
    if not is_ours:
        # Changing the mode of a user's home folder, or of /tmp, would break other files there.
        raise HomeUnusableError(f"{home.root} contains other files. Set EVERTURN_HOME to a new or an empty folder.")
    if is_root():
        os.chown(home.root, 0, SERVER_UID)
        home.root.chmod(0o710)
    else:
        home.root.chmod(0o700)
    for folder in (home.processes, home.redis, home.objects, home.logs, home.sockets):
        folder.mkdir(exist_ok=True)
        folder.chmod(0o700)
    return home


def save_secrets(home: Home) -> Secrets:
    """Return the stored passwords; generate and store them at the first call."""
    if home.secrets_file.exists():
        return load_secrets(home)
    made = Secrets(**{field.name: secrets.token_hex(PASSWORD_BYTES) for field in fields(Secrets)})
    _save_private(home.secrets_file, json.dumps(asdict(made)))
    return made


def save_signing_secret(home: Home) -> str:
    """Return the stored secret; generate and store it at the first call. Raises HomeDamagedError."""
    file = home.signing_secret_file
    try:
        if not file.exists():
            _save_private(file, secrets.token_hex(SIGNING_BYTES))
        return file.read_text().strip()
    except (OSError, ValueError) as error:
        raise HomeDamagedError(
            f"{file} can't be read ({error}). Remove it; this invalidates guest tokens and tickets."
        ) from error


def _save_private(file: Path, text: str) -> None:
    """Write atomically, readable only by this user."""
    unfinished = file.with_suffix(".new")
    unfinished.unlink(missing_ok=True)
    with os.fdopen(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as opened:
        opened.write(text)
        opened.flush()
        os.fsync(opened.fileno())
    unfinished.replace(file)


def load_secrets(home: Home) -> Secrets:
    try:
        return Secrets(**json.loads(home.secrets_file.read_text()))
    except (OSError, ValueError, TypeError) as error:
        raise HomeDamagedError(
            f"{home.secrets_file} can't be read ({error}). The databases need the passwords in it; "
            "restore it, or start over with `make clean`, which deletes all conversations."
        ) from error


def remove_home(home: Home) -> None:
    """Delete all state, but only our own files: EVERTURN_HOME can be a folder that contains others."""
    servers = home.postgres, home.redis, home.clamd
    for folder in (*servers, home.objects, home.logs, home.sockets, home.processes, home.bundle_environments):
        shutil.rmtree(folder, ignore_errors=True)
    for file in (home.secrets_file, home.signing_secret_file, home.lock_file):
        with suppress(OSError):  # `load_left` reports what can't be deleted, here and in the folders
            file.unlink(missing_ok=True)
    if home.root.is_dir() and not any(home.root.iterdir()):
        home.root.rmdir()


def load_left(home: Home) -> list[str]:
    """The names that remain in the root: files of others, and files that this user can't delete."""
    return sorted(path.name for path in home.root.iterdir()) if home.root.is_dir() else []


def check_unused(home: Home) -> None:
    """Raises HomeInUseError while another run holds the home."""
    if home.lock_file.exists():
        with run_lock(home):
            pass


@contextmanager
def run_lock(home: Home) -> Generator[None]:
    """Hold the home for one run. The kernel releases the lock when the process dies, however it dies."""
    with home.lock_file.open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            file.seek(0)
            owner = file.read(32).strip() or "unknown"
            raise HomeInUseError(
                f"{home.root} is in use by process {owner}. Stop that run, or set EVERTURN_HOME to another folder."
            ) from error
        file.truncate(0)
        file.write(f"{os.getpid()}\n")
        file.flush()
        yield
