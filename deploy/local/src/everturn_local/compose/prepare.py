"""The files of an installation: variables of the compose file, settings, configuration, and secrets.

They are created at the first start and never changed afterwards. A secret is one file. Containers run as several users,
none of which is ours. So every file is readable, and the folder is closed to all but us and the engine. Uses only the
standard library, because deploy/prepare.py runs it without an environment.
"""

import os
import re
import secrets
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from everturn.redis.users import INGRESS, WORKER, build_user_lines, derive_password

PASSWORD_BYTES: Final = 24
KEY_BYTES: Final = 32
FOLDER_MODE: Final = 0o700
FILE_MODE: Final = 0o444
DATABASE: Final = "postgres:5432"
REDIS_OPERATOR: Final = "redis-url"
"""The operator's URL, which no container gets."""
LAST: Final = "signing-secret"
"""The file that is written last: if it exists, the folder was complete once; otherwise nothing was started yet."""


DEPLOY: Final = Path(__file__).resolve().parents[4]
VARIABLES: Final = ".env"
SETTINGS: Final = "everturn.env"
CONFIG: Final = "config/everturn.toml"
BUNDLES: Final = "config/bundles"
"""Mounted with its parent. Workers don't start without it."""
SECRETS: Final = "secrets"
BUNDLE_SECRETS: Final = "bundles"
"""In the folder of secrets; workers mount it."""
USUAL_SOCKET: Final = "/var/run/docker.sock"
_NAMED_AFTER_VARIABLE: Final = re.compile(r'^  ([A-Z][A-Z0-9_]*): \{file: "[^"]*/([a-z0-9-]+)"\}$', re.MULTILINE)
FIRST_CONFIG: Final = """\
# Models by role, properties of bundles, and your own tools: docs/how-to/configure.md. Ingress and workers read this
# file as /etc/everturn/everturn.toml; other files in this folder, such as tool modules, are next to it.
# `make up` recreates the containers when a file in this folder has changed. Bundles are folders in `bundles`, from
# which running workers load changes: docs/bundles.md.
"""


class NotPrepared(Exception):
    """A file of the installation can't be created, or was lost."""


def prepare(home: Path, environment: Mapping[str, str], *, store: bool = False) -> None:
    """Create what is missing in the installation's folder. `store`: also keys for the included S3 server.

    Raises NotPrepared.
    """
    try:
        save_first_files(home, Path(environment.get("DOCKER_SOCKET") or USUAL_SOCKET))
        save_secrets(home / SECRETS, environment)
        (home / SECRETS / BUNDLE_SECRETS).mkdir(exist_ok=True)
        if store:
            save_store_keys(home / SECRETS)
    except OSError as error:
        raise NotPrepared(f"{error.filename or home}: {error.strerror}.") from error


def save_first_files(home: Path, socket: Path) -> None:
    """Create variables, settings, configuration and the folder of bundles if they don't exist; afterwards the operator
    owns them."""
    variables = (DEPLOY / ".env.example").read_text()
    if socket.exists():
        variables = re.sub(r"^DOCKER_GROUP=.*$", f"DOCKER_GROUP={socket.stat().st_gid}", variables, flags=re.MULTILINE)
    settings = (DEPLOY / "everturn.env.example").read_text()
    (home / BUNDLES).mkdir(parents=True, exist_ok=True)
    for name, text in ((VARIABLES, variables), (SETTINGS, settings), (CONFIG, FIRST_CONFIG)):
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        if not (home / name).exists():
            (home / name).write_text(text)


def save_secrets(folder: Path, given: Mapping[str, str]) -> None:
    """Create missing secrets, and copy those of the environment. Raises NotPrepared."""
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(FOLDER_MODE)
    made = build_secrets()
    check_complete(folder, made)
    if not (folder / LAST).exists():
        for name, value in made.items():
            _save(folder / name, value)
    for name, value in build_redis_files((folder / REDIS_OPERATOR).read_text().strip()).items():
        _save_changed(folder / name, value)
    for name, variable in load_given(made).items():
        if value := given.get(variable):
            _save(folder / name, value)
        else:
            _save_missing(folder / name, "")


def load_given(generated: Collection[str]) -> dict[str, str]:
    """Externally issued secrets by file name, and the variables that can set them: all secrets that docker-compose.yml
    names after a variable, without the generated ones. An empty file is a secret that is not set."""
    declared = _NAMED_AFTER_VARIABLE.findall((DEPLOY / "docker-compose.yml").read_text())
    return {name: variable for variable, name in declared if name not in generated}


def check_complete(folder: Path, names: Iterable[str]) -> None:
    """Raises NotPrepared if some are lost: new ones would not match the existing data."""
    lost = sorted(name for name in names if not (folder / name).exists())
    if lost and (folder / LAST).exists():
        raise NotPrepared(
            f"{', '.join(lost)} is missing in {folder}. Restore the file, or start over without the data: "
            "make down VOLUMES=1, and delete the folder."
        )


def build_secrets() -> dict[str, str]:
    """Generate values by file name. Hexadecimal, so that they need no quoting in a URL."""
    admin, owner, ingress, worker, redis = (secrets.token_hex(PASSWORD_BYTES) for _ in range(5))
    return {
        "postgres-password": admin,
        "admin-database-url": f"postgresql://postgres:{admin}@{DATABASE}/postgres",
        "owner-database-url": f"postgresql://everturn_owner:{owner}@{DATABASE}/everturn",
        "ingress-database-url": f"postgresql://everturn_ingress:{ingress}@{DATABASE}/everturn",
        "worker-database-url": f"postgresql://everturn_worker:{worker}@{DATABASE}/everturn",
        REDIS_OPERATOR: f"redis://:{redis}@redis:6379/0",
        "auth-secret": secrets.token_hex(KEY_BYTES),
        "signing-secret": secrets.token_hex(KEY_BYTES),
    }


def build_redis_files(operator_url: str) -> dict[str, str]:
    """The server's configuration and the services' URLs, by file name. Written at each start, because the permissions
    of a service change with the version."""
    password = urlsplit(operator_url).password or ""
    addresses = {
        name: f"redis://{user}:{derive_password(password, user)}@redis:6379/0"
        for name, user in (("ingress-redis-url", INGRESS), ("worker-redis-url", WORKER))
    }
    return {"redis.conf": "\n".join([f"requirepass {password}", *build_user_lines(password)]), **addresses}


def save_store_keys(folder: Path) -> None:
    """Generate keys for the included S3 server if none were given."""
    files = [folder / "aws-access-key-id", folder / "aws-secret-access-key"]
    if not all(file.read_text().strip() for file in files):
        for file in files:
            _save(file, secrets.token_hex(PASSWORD_BYTES))


def _save_missing(file: Path, value: str) -> None:
    if not file.exists():
        _save(file, value)


def _save_changed(file: Path, value: str) -> None:
    """Write only on change, because a running container keeps the file it was started with."""
    if not file.exists() or file.read_text() != f"{value}\n":
        _save(file, value)


def _save(file: Path, value: str) -> None:
    """Write atomically."""
    unfinished = file.with_name(f".{file.name}.new")
    unfinished.unlink(missing_ok=True)
    with os.fdopen(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as opened:
        opened.write(f"{value}\n" if value else "")
        opened.flush()
        os.fsync(opened.fileno())
    unfinished.chmod(FILE_MODE)
    unfinished.replace(file)
