"""Which containers of an installation are well, and what each of the others said last: why `make up` failed."""

from collections.abc import Callable, Iterable
from typing import Final, Protocol

from everturn_local.images.engine import FoundContainer, NoEngineError

PROJECT_LABEL: Final = "com.docker.compose.project"
SERVICE_LABEL: Final = "com.docker.compose.service"
WORKERS: Final = "chat-proc"
"""The service whose containers are workers."""
JOBS: Final = frozenset({"migrate"})
"""Services that are to end, with status 0."""
SHOWN_LINES: Final = 40
MAX_SHOWN_CHARS: Final = 20_000
"""Of one container: a line may be long."""


class Containers(Protocol):
    """The part of an engine that is asked."""

    def load_containers(self, label: str) -> list[FoundContainer]: ...

    def load_last_lines(self, name: str, *, count: int) -> str: ...


def show_unwell(engine: Containers, project: str, show: Callable[[str], None]) -> None:
    """Show the state and the last lines of each container that is not well. An engine that went away is told so:
    whoever calls has a failure of their own to tell."""
    try:
        unwell = find_unwell(engine.load_containers(f"{PROJECT_LABEL}={project}"))
    except NoEngineError as error:
        show(f"the containers' output can't be shown: {error}")
        return
    for container in unwell:
        show(f"{container.name} {describe(container)}, and {_load_last_words(engine, container.name)}")


def _load_last_words(engine: Containers, name: str) -> str:
    try:
        said = engine.load_last_lines(name, count=SHOWN_LINES)[-MAX_SHOWN_CHARS:].rstrip()
    except NoEngineError as error:
        # It may have been removed since; the others are told of all the same.
        return f"its output can't be shown: {error}"
    return f"said last:\n{said}" if said else "said nothing"


def find_unwell(containers: Iterable[FoundContainer]) -> list[FoundContainer]:
    """By name. A container without a healthcheck is well while it runs, a job when it has ended with 0."""
    return sorted((each for each in containers if not _is_well(each)), key=lambda each: each.name)


def count_well(containers: Iterable[FoundContainer], service: str) -> int:
    """How many containers of this service are well now."""
    return sum(_is_well(each) for each in containers if each.labels.get(SERVICE_LABEL) == service)


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


def _is_well(container: FoundContainer) -> bool:
    if container.state == "exited":
        return container.exit_code == 0 and container.labels.get(SERVICE_LABEL) in JOBS
    return container.state == "running" and container.health in ("", "healthy")
