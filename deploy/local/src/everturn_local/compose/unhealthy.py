"""Finds unhealthy containers of an installation and their last output: why `make up` failed."""

from collections.abc import Callable, Iterable
from typing import Final

from everturn_local.images.engine import Engine, FoundContainer, NoEngineError

PROJECT_LABEL: Final = "com.docker.compose.project"
SERVICE_LABEL: Final = "com.docker.compose.service"
WORKERS: Final = "chat-proc"
"""The service whose containers are workers."""
JOBS: Final = frozenset({"migrate", "supervisor", "executor"})
"""Services that must end, with status 0."""
SHOWN_LINES: Final = 40
MAX_SHOWN_CHARS: Final = 20_000
"""Limit for one container: a line can be long."""


def show_unhealthy(engine: Engine, project: str, show: Callable[[str], None]) -> None:
    """Show the state and the last lines of each unhealthy container. An engine failure is only shown, because the
    caller has a failure of its own to report."""
    try:
        unhealthy = find_unhealthy(engine.load_containers(f"{PROJECT_LABEL}={project}"))
    except NoEngineError as error:
        show(f"the containers' output can't be shown: {error}")
        return
    for container in unhealthy:
        show(f"{container.name} {describe(container)}, and {_load_last_lines(engine, container.name)}")


def _load_last_lines(engine: Engine, name: str) -> str:
    try:
        output = engine.load_last_lines(name, count=SHOWN_LINES)[-MAX_SHOWN_CHARS:].rstrip()
    except NoEngineError as error:
        # It may have been removed since; report the others anyway.
        return f"its output can't be shown: {error}"
    return f"last output:\n{output}" if output else "no output"


def find_unhealthy(containers: Iterable[FoundContainer]) -> list[FoundContainer]:
    """Find unhealthy containers, sorted by name. Without a healthcheck a running one is healthy, a job when it ended
    with 0."""
    return sorted((each for each in containers if not _is_healthy(each)), key=lambda each: each.name)


def count_healthy(containers: Iterable[FoundContainer], service: str) -> int:
    """How many containers of this service are healthy now."""
    return sum(_is_healthy(each) for each in containers if each.labels.get(SERVICE_LABEL) == service)


def describe(container: FoundContainer) -> str:
    """Its state in words."""
    match container.state:
        case "exited" | "dead" | "restarting":
            return f"ended with {container.exit_code}" + (", repeatedly" if container.state == "restarting" else "")
        case "created":
            return "was not started, because something it needs is not ready"
        case "running":
            return "is running but not healthy" if container.health == "unhealthy" else "is running but not ready yet"
        case other:
            return f"is {other}"


def _is_healthy(container: FoundContainer) -> bool:
    if container.state == "exited":
        return container.exit_code == 0 and container.labels.get(SERVICE_LABEL) in JOBS
    return container.state == "running" and container.health in ("", "healthy")
