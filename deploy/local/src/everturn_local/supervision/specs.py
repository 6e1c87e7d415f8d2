"""The command and environment of each service."""

import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from everturn.core.settings import ADDRESS_PATTERN, METRICS_LISTEN
from everturn.redis.users import INGRESS, WORKER
from everturn_local.home import Home
from everturn_local.servers.databases import DatabaseUrls
from everturn_local.servers.redis import EmbeddedRedis
from everturn_local.settings import REPOSITORY, BadSettings
from everturn_local.supervision.service import ServiceSpec

BROKER = "broker"
BROKER_PREFIXES = ("BROKER_", "DOCKER_", "LC_", "LOG_")
BROKER_NAMES = ("EXECUTION_PROFILES", "FAILPOINT", "HOME", "LANG", "PATH", "TZ")
"""The only variables of the caller that the broker gets: it has access to the engine, so it gets no keys."""

SANDBOX_PYTHON = REPOSITORY / ".venv-sandbox" / "bin" / "python"


@dataclass(frozen=True, slots=True)
class Layout:
    """How many services run and where the ingresses listen: one per port. `containers`: with a broker."""

    host: str
    ports: Sequence[int]
    workers: int
    containers: bool = False


@dataclass(frozen=True, slots=True)
class RedisUrls:
    """The Redis URL of each service."""

    ingress: str
    worker: str


def build_redis_urls(server: EmbeddedRedis) -> RedisUrls:
    return RedisUrls(ingress=server.service_url(INGRESS), worker=server.service_url(WORKER))


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What all services share. `env` is the caller's environment, including model keys and proxies."""

    home: Home
    database: DatabaseUrls
    redis: RedisUrls
    env: Mapping[str, str]
    signing_secret: str = ""
    clamd_url: str = ""
    """URL of our own antivirus; empty if none was started."""


def build_specs(around: Surroundings, layout: Layout) -> list[ServiceSpec]:
    """The broker first if there is one, then `ingress-1`..., and `worker-1`..."""
    broker = [build_broker_spec(around, layout.workers)] if layout.containers else []
    ingresses = [
        build_ingress_spec(around, f"ingress-{number}", host=layout.host, port=port)
        for number, port in enumerate(layout.ports, 1)
    ]
    workers = [build_worker_spec(around, number) for number in range(1, layout.workers + 1)]
    if layout.containers:
        url = f"unix://{around.home.broker_socket}"
        workers = [replace(worker, env={**worker.env, "BROKER_URL": url}) for worker in workers]
    return [*broker, *ingresses, *workers]


def build_broker_spec(around: Surroundings, workers: int) -> ServiceSpec:
    """The only service with access to the container engine."""
    inherited = {
        name: value for name, value in around.env.items() if name in BROKER_NAMES or name.startswith(BROKER_PREFIXES)
    }
    env = {"LOG_FORMAT": "json", **inherited, "BROKER_SOCKET": str(around.home.broker_socket)}
    if around.env.get(METRICS_LISTEN):
        env[METRICS_LISTEN] = build_metrics_address(around.env[METRICS_LISTEN], workers)
    argv = [sys.executable, "-I", "-m", "exec_supervisor", "broker"]
    log = around.home.logs / f"{BROKER}.log"
    return ServiceSpec(name=BROKER, argv=argv, env=env, log=log, ready_on_stdout=True)


def build_ingress_spec(around: Surroundings, name: str, *, host: str, port: int) -> ServiceSpec:
    own = {"DATABASE_URL": around.database.ingress, "REDIS_URL": around.redis.ingress, "HOST": host, "PORT": str(port)}
    if around.clamd_url:
        own["CLAMD_URL"] = around.clamd_url
    if not around.env.get("SIGNING_SECRET"):
        own["SIGNING_SECRET"] = around.signing_secret
    return _build_spec(around, name, module="ingress", own=own)


def build_worker_spec(around: Surroundings, number: int) -> ServiceSpec:
    """METRICS_LISTEN is the first worker's; each of the others uses the next port."""
    own = {
        "DATABASE_URL": around.database.worker,
        "REDIS_URL": around.redis.worker,
        "SANDBOX_PYTHON": str(SANDBOX_PYTHON),
    }
    if not around.env.get("BUNDLES_DIR") and around.home.bundles.is_dir():
        own["BUNDLES_DIR"] = str(around.home.bundles)
    if not around.env.get("BUNDLE_ENVIRONMENTS_DIR"):
        own["BUNDLE_ENVIRONMENTS_DIR"] = str(around.home.bundle_environments)
    if around.env.get(METRICS_LISTEN):
        own[METRICS_LISTEN] = build_metrics_address(around.env[METRICS_LISTEN], number - 1)
    return _build_spec(around, f"worker-{number}", module="chat_proc", own=own)


def build_metrics_address(first: str, offset: int) -> str:
    """The address whose port is so many above that of the first one; port 0 remains 0. Raises BadSettings."""
    if not re.fullmatch(ADDRESS_PATTERN, first):
        raise BadSettings("METRICS_LISTEN must be host:port or empty.")
    host, _, port = first.rpartition(":")
    return f"{host}:{int(port) + offset if int(port) else 0}"


def _build_spec(around: Surroundings, name: str, *, module: str, own: Mapping[str, str]) -> ServiceSpec:
    env = {
        "LOG_FORMAT": "json",
        "EVERTURN_MODE": "development",
        **{name: value for name, value in around.env.items() if not name.startswith("DOCKER_")},
        # The only external server of the caller that services here can use: files can be in a bucket.
        "OBJECTS_URL": around.env.get("OBJECTS_URL") or around.home.objects_url,
        **own,
    }
    # -P keeps the current folder off the import path: a file named json.py there must not be imported.
    argv = [sys.executable, "-P", "-m", module]
    return ServiceSpec(name=name, argv=argv, env=env, log=around.home.logs / f"{name}.log")
