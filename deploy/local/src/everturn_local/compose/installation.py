"""The parts of an installation besides the compose file: its folder, its settings, and the file's variables."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from everturn.core.errors import EverturnError
from everturn_local.compose.prepare import BUNDLES, CONFIG, SECRETS, SETTINGS
from everturn_local.settings import WARM_PROFILES, ComposeSettings

USUAL_ENGINE: Final = "unix:///var/run/docker.sock"
STORE_URL: Final = "s3://everturn/objects?endpoint=http://s3:9000&region=us-east-1"


class NoSocket(EverturnError):
    """The broker needs the engine's socket, but there is none."""


@dataclass(frozen=True, slots=True)
class Installation:
    """The files of an installation."""

    home: Path

    @property
    def secrets(self) -> Path:
        return self.home / SECRETS

    @property
    def settings_file(self) -> Path:
        return self.home / SETTINGS

    @property
    def config_file(self) -> Path:
        return self.home / CONFIG

    def compute_config_digest(self) -> str:
        """A digest of the configuration folder; the compose program does not detect changes in mounted folders. Without
        bundles, from which running workers load changes."""
        digest = hashlib.sha256()
        folder, bundles = self.config_file.parent, self.home / BUNDLES
        for path in sorted(path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts):
            if path.is_relative_to(bundles):
                continue
            with path.open("rb") as file:
                digest.update(f"{path.relative_to(folder)}\0".encode() + hashlib.file_digest(file, "sha256").digest())
        return digest.hexdigest()


def build_variables(settings: ComposeSettings, environment: Mapping[str, str]) -> dict[str, str]:
    """The environment of the compose program: the caller's, and the variables of the file. Raises NoSocket."""
    installation = Installation(settings.home.absolute())
    socket = find_socket(environment)
    store = {"OBJECTS_URL": STORE_URL} if settings.s3 else {}
    return {
        "EXECUTION_PROFILES": WARM_PROFILES,
        **environment,
        **store,
        "HOST": settings.host,
        "PORT": str(settings.port),
        "WORKERS": str(settings.workers),
        "EVERTURN_SECRETS": str(installation.secrets),
        "EVERTURN_ENV": str(installation.settings_file),
        "EVERTURN_CONFIG_FOLDER": str(installation.config_file.parent),
        "EVERTURN_CONFIG_DIGEST": installation.compute_config_digest(),
        "DOCKER_SOCKET": str(socket),
        "DOCKER_GROUP": str(socket.stat().st_gid),
    }


def find_socket(environment: Mapping[str, str]) -> Path:
    """The engine's socket. Raises NoSocket."""
    address = environment.get("DOCKER_HOST") or USUAL_ENGINE
    parts = urlsplit(address)
    if parts.scheme != "unix" or not Path(parts.path).is_socket():
        raise NoSocket(
            f"Address: {address}. Start Docker on this machine, and leave DOCKER_HOST unset or unix:///path."
        )
    return Path(parts.path).resolve()
