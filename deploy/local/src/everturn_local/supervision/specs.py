"""How each service is started: its command and its environment."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from everturn_local.home import Home
from everturn_local.servers.databases import DatabaseUrls
from everturn_local.settings import REPOSITORY
from everturn_local.supervision.service import ServiceSpec

SANDBOX_PYTHON = REPOSITORY / ".venv-sandbox" / "bin" / "python"


@dataclass(frozen=True, slots=True)
class Layout:
    """How many services run and where the ingresses listen: one per port."""

    host: str
    ports: Sequence[int]
    workers: int


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What all services share. `env` is the caller's environment, which carries model keys and proxies."""

    home: Home
    database: DatabaseUrls
    redis_url: str
    env: Mapping[str, str]


def build_specs(around: Surroundings, layout: Layout) -> list[ServiceSpec]:
    """Ingresses first: `ingress-1`... and `worker-1`..."""
    ingresses = [
        build_ingress_spec(around, f"ingress-{number}", host=layout.host, port=port)
        for number, port in enumerate(layout.ports, 1)
    ]
    return ingresses + [build_worker_spec(around, f"worker-{number}") for number in range(1, layout.workers + 1)]


def build_ingress_spec(around: Surroundings, name: str, *, host: str, port: int) -> ServiceSpec:
    own = {"DATABASE_URL": around.database.ingress, "HOST": host, "PORT": str(port)}
    return _build_spec(around, name, module="ingress", own=own)


def build_worker_spec(around: Surroundings, name: str) -> ServiceSpec:
    own = {"DATABASE_URL": around.database.worker, "SANDBOX_PYTHON": str(SANDBOX_PYTHON)}
    return _build_spec(around, name, module="chat_proc", own=own)


def _build_spec(around: Surroundings, name: str, *, module: str, own: Mapping[str, str]) -> ServiceSpec:
    env = {
        "LOG_FORMAT": "json",
        "EVERTURN_MODE": "development",
        **around.env,
        "REDIS_URL": around.redis_url,
        "OBJECTS_URL": around.home.objects_url,
        **own,
    }
    # -P keeps the current folder off the import path: a file named json.py there must not be loaded.
    argv = [sys.executable, "-P", "-m", module]
    return ServiceSpec(name=name, argv=argv, env=env, log=around.home.logs / f"{name}.log")
