"""`make operate`: an operator command of the ingress, on the platform that runs from this home."""

import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Final

from everturn.core.errors import EverturnError
from everturn_local.home import Home, HomeInUseError, check_unused, load_secrets, save_signing_secret
from everturn_local.ports import LOOPBACK
from everturn_local.servers.clamd import find_socket
from everturn_local.servers.databases import build_urls
from everturn_local.servers.postgres import EmbeddedPostgres
from everturn_local.servers.redis import EmbeddedRedis
from everturn_local.settings import LocalSettings
from everturn_local.supervision.service import ServiceSpec
from everturn_local.supervision.specs import Surroundings, build_ingress_spec, build_redis_urls

EXAMPLE: Final = 'make operate DO="keys list --tenant default"'
BAD_USAGE: Final = 2


class NotRunning(EverturnError):
    """The platform is not running."""


def run_operate(settings: LocalSettings, arguments: Sequence[str], *, environment: Mapping[str, str]) -> int:
    """Return the command's exit status. Without arguments it lists the commands. Raises NotRunning."""
    spec = load_operator(settings, environment)
    # Without a command the ingress would serve.
    argv = [*spec.argv, "--called-as", "make operate", *(arguments or ["--help"])]
    status = subprocess.run(argv, env=dict(spec.env), check=False).returncode
    if status == BAD_USAGE or not arguments:
        print(f"Pass a command in DO, for example: {EXAMPLE}", file=sys.stderr)
    return status


def load_operator(settings: LocalSettings, environment: Mapping[str, str]) -> ServiceSpec:
    """The spec of an ingress with the settings of the running ones, plus the migrating role's URL. Raises
    NotRunning."""
    home = Home(settings.everturn_home.absolute())
    _check_runs(home)
    secrets = load_secrets(home)
    postgres = EmbeddedPostgres(home.postgres, password=secrets.postgres)
    redis = EmbeddedRedis(home.redis, password=secrets.redis)
    postgres.attach()
    redis.attach()
    clamd = find_socket(home.clamd)
    around = Surroundings(
        home,
        build_urls(postgres, secrets),
        build_redis_urls(redis),
        environment,
        signing_secret=save_signing_secret(home),
        clamd_url=f"unix://{clamd}" if clamd.exists() else "",
    )
    spec = build_ingress_spec(around, "operator", host=LOOPBACK, port=0)
    return ServiceSpec(
        name=spec.name,
        argv=spec.argv,
        env={"LOG_LEVEL": "warning", **spec.env, "DATABASE_OWNER_URL": around.database.owner},
        log=spec.log,
    )


def _check_runs(home: Home) -> None:
    try:
        check_unused(home)
    except HomeInUseError:
        return
    raise NotRunning(
        f"EVERTURN_HOME is {home.root}, and nothing runs there. Start it with `make run`. If `make run` was started "
        "with another EVERTURN_HOME, set the same one for this command: EVERTURN_HOME=FOLDER make operate …"
    )
