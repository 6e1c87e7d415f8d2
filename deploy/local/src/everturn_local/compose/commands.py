"""`make up`, `make down` and `make logs`: start the platform as containers, stop them, and show their logs."""

import os
from collections.abc import Callable, Mapping
from typing import Final

from everturn.core.errors import EverturnError
from everturn_local.compose.images import save_images
from everturn_local.compose.installation import Installation, build_variables
from everturn_local.compose.prepare import VARIABLES, NotPrepared, prepare
from everturn_local.compose.program import FILE, Compose, ComposeFailed, find_program
from everturn_local.compose.unhealthy import PROJECT_LABEL, WORKERS, count_healthy, show_unhealthy
from everturn_local.images.engine import Engine, NoEngineError, open_engine
from everturn_local.ports import is_port_free
from everturn_local.readiness import Readiness, build_url, load_readiness, wait_ready
from everturn_local.settings import ComposeSettings

START_LIMIT_S: Final = 1_800.0
"""The first start pulls third-party images."""
READY_LIMIT_S: Final = 600.0
"""From the start of the containers: clamd loads its signatures, and the migrations run."""
STOP_LIMIT_S: Final = 300.0
SHOWN_LINES: Final = "40"
OWN_IMAGES: Final = ("BROKER_IMAGE", "CHAT_PROC_IMAGE", "INGRESS_IMAGE")
"""Variables with which an operator names images built elsewhere; ours aren't built when all of them are set."""

Report = Callable[[str], None]


class PortTaken(EverturnError):
    """The port is in use by another program."""


class NotInstalled(EverturnError):
    """The files of the installation can't be used."""


class NotReady(EverturnError):
    """The platform was started and did not become ready."""


def run_up(
    settings: ComposeSettings, environment: Mapping[str, str], report: Report, *, limit_s: float = READY_LIMIT_S
) -> int:
    """Return 0 once the platform is ready; unchanged containers keep running. Raises EverturnError.

    Beside the plain commands that docs/how-to/run-with-compose.md names, it waits and says what failed.
    """
    installation = Installation(settings.home.absolute())
    try:
        prepare(installation.home, environment, store=settings.s3)
    except NotPrepared as error:
        raise NotInstalled(str(error)) from error
    compose = open_compose(settings, environment)
    with open_engine(environment) as engine:
        check_port(settings, compose)
        made_elsewhere = all(environment.get(name) for name in OWN_IMAGES)
        save_images(compose, only="runs" if made_elsewhere else "all", report=report)
        report(f"starting the containers of {FILE.name}, project {settings.project}")
        try:
            compose.run("up", "--detach", "--no-build", "--remove-orphans", limit_s=START_LIMIT_S)
        except ComposeFailed:
            show_unhealthy(engine, settings.project, report)
            raise
        wait_started(settings, engine, report, limit_s=limit_s)
    report(
        f"settings: {installation.settings_file}, configuration: {installation.config_file}, "
        f"secrets: {installation.secrets}"
    )
    return 0


def wait_started(settings: ComposeSettings, engine: Engine, report: Report, *, limit_s: float = READY_LIMIT_S) -> None:
    """Wait until the platform is ready. Raises NotReady, after showing the last output of unhealthy containers."""
    url = build_url(settings.host, settings.port)
    found = wait_ready(lambda: _check(settings, url, engine), limit_s=limit_s)
    if found.missing:
        show_unhealthy(engine, settings.project, report)
        raise NotReady(f"{found.missing} `make logs` shows more.")
    for failing in found.failing:
        report(f"running without {failing}")
    report(f"ready: {url}")


def _check(settings: ComposeSettings, url: str, engine: Engine) -> Readiness:
    """The platform's report, and the health of this start's worker containers: the report still includes ended workers
    of an earlier start for some seconds."""
    found = load_readiness(url, settings.workers)
    if found.missing:
        return found
    try:
        healthy = count_healthy(engine.load_containers(f"{PROJECT_LABEL}={settings.project}"), WORKERS)
    except NoEngineError as error:
        return Readiness(f"Could not list the workers' containers: {error}.", found.failing)
    missing = f"{healthy} of {settings.workers} worker containers are healthy." if healthy < settings.workers else ""
    return Readiness(missing, found.failing)


def run_down(settings: ComposeSettings, environment: Mapping[str, str], *, volumes: bool, yes: bool) -> int:
    """Stop and remove the containers. `volumes` also deletes all data, after a question that `yes` skips."""
    compose = open_compose(settings, environment)
    if volumes and not yes and not _agrees(f"Delete all conversations and files of {settings.project}? [y/N] "):
        print("kept")
        return 1
    compose.run("down", "--remove-orphans", *(["--volumes"] if volumes else []), limit_s=STOP_LIMIT_S)
    return 0


def run_logs(settings: ComposeSettings, environment: Mapping[str, str], services: str) -> int:
    """Show the last lines of all services, or of those named, and follow them until Ctrl-C."""
    compose = open_compose(settings, environment)
    return compose.follow("logs", "--follow", "--tail", SHOWN_LINES, *services.split())


def open_compose(settings: ComposeSettings, environment: Mapping[str, str]) -> Compose:
    """Open the compose program with the variables of the file. Raises NoCompose, NoSocket."""
    variables = build_variables(settings, environment)
    program = find_program(environment.get("PATH", os.defpath))
    written = settings.home.absolute() / VARIABLES
    options = [
        *(["--env-file", str(written)] if written.exists() else []),
        *(["--profile", "s3"] if settings.s3 else []),
    ]
    return Compose(program, settings.project, variables, options)


def check_port(settings: ComposeSettings, compose: Compose) -> None:
    """Raises PortTaken unless the port is free or used by our own ingress."""
    if not is_port_free(settings.port, settings.host) and not compose.capture("ps", "--quiet", "ingress"):
        raise PortTaken(f"{settings.host}:{settings.port}. Stop that program, or choose another: make up PORT=8090")


def _agrees(question: str) -> bool:
    """Ask a yes/no question; False at the end of input."""
    try:
        return input(question).strip().lower() == "y"
    except EOFError:
        return False
