"""The operations that we need of a container engine: inspect, pull, import, build and remove images, one throw-away
run, and the state of containers that others started."""

import contextlib
import tempfile
from collections import deque
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from typing import Any, BinaryIO, Final, cast

import docker
from docker import errors as docker_errors

from everturn.core.errors import EverturnError
from everturn_local.images.context import Context, save_context

ANSWER_LIMIT_S: Final = 60
"""Seconds until an unresponsive engine is given up."""
STEP_LIMIT_S: Final = 300
"""Seconds of silence inside one step of a build."""
USUAL_ADDRESS: Final = "unix:///var/run/docker.sock"
SHOWN_LINES: Final = 40


class NoEngineError(EverturnError):
    """No container engine responds."""


class EngineRefusedError(NoEngineError):
    """This user may not use the container engine."""


class ImageError(EverturnError):
    """An image could not be built."""


@dataclass(frozen=True, slots=True)
class FoundImage:
    """An image that the engine has."""

    id: str
    labels: Mapping[str, str]
    tags: tuple[str, ...] = ()
    created: str = ""


@dataclass(frozen=True, slots=True)
class FoundContainer:
    """A container in any state. `state` is the engine's term; `health` is empty without a healthcheck."""

    name: str
    labels: Mapping[str, str]
    state: str
    health: str
    exit_code: int


@contextlib.contextmanager
def open_engine(environment: Mapping[str, str], *, limit_s: int = ANSWER_LIMIT_S) -> Generator["Engine"]:
    """Open the engine that DOCKER_HOST names, or the default socket. Raises NoEngineError with address and cause."""
    try:
        client = cast("Any", docker).DockerClient.from_env(
            environment=dict(environment), timeout=limit_s, version="auto"
        )
    except docker_errors.DockerException as error:
        address = environment.get("DOCKER_HOST") or USUAL_ADDRESS
        kind = EngineRefusedError if "PermissionError" in str(error) else NoEngineError
        raise kind(f"Address: {address}; {error}") from error
    try:
        yield Engine(client)
    finally:
        client.close()


class Engine:
    """Calls to the engine's API, with its errors translated."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def load_version(self) -> str:
        with _translated():
            return str(self._client.version()["Version"])

    def try_load_image(self, name: str) -> FoundImage | None:
        """Find an image by name or id."""
        with _translated():
            try:
                found = self._client.images.get(name)
            except docker_errors.ImageNotFound:
                return None
            return _read_image(found)

    def load_tags(self, repository: str) -> list[str]:
        """The names of this repository's images, newest first."""
        with _translated():
            found = [_read_image(image) for image in self._client.images.list(name=repository)]
        images = sorted(found, key=lambda image: image.created, reverse=True)
        # An image can also have names in other repositories, which we must not touch.
        return [tag for image in images for tag in image.tags if tag.startswith(f"{repository}:")]

    def pull_image(self, name: str) -> None:
        """Pull an image from a registry that the engine knows. Raises ImageError."""
        with _translated():
            self._client.images.pull(name)

    def import_image(self, tar: BinaryIO, name: str) -> None:
        """Import a file system as an image of one layer."""
        repository, _, tag = name.partition(":")
        with _translated():
            self._client.api.import_image(src=tar, repository=repository, tag=tag)

    def build_image(
        self, context: Context, *, name: str, arguments: Mapping[str, str], labels: Mapping[str, str]
    ) -> None:
        """Build the Dockerfile of the context. Raises ImageError with the end of the output."""
        output: deque[str] = deque(maxlen=SHOWN_LINES)
        with tempfile.TemporaryFile() as tar, _translated():
            save_context(context, cast("BinaryIO", tar))
            tar.seek(0)
            lines = self._client.api.build(
                fileobj=tar,
                custom_context=True,
                tag=name,
                rm=True,
                forcerm=True,
                buildargs=dict(arguments),
                labels=dict(labels),
                network_mode="none",
                timeout=STEP_LIMIT_S,
                decode=True,
            )
            for line in lines:
                output.append(str(line.get("stream", "")))
                if "error" in line:
                    raise ImageError(f"{name}: {line['error']}\n{''.join(output)}")

    def try_remove_tag(self, name: str) -> str | None:
        """Remove a tag; None if it was kept because a container uses it."""
        with _translated():
            try:
                self._client.images.remove(name)
            except docker_errors.APIError as error:
                if error.status_code != 409:
                    raise
                return None
        return name

    def run_python(self, image: str, source: str) -> str:
        """Run a program in a temporary container and return its output. Raises ImageError."""
        with _translated():
            container = self._client.containers.create(
                image, ["python3", "-I", "-c", source], entrypoint="", network_mode="none"
            )
            try:
                # Attach before the start: the engine's log can lag behind the container's end.
                output = container.attach(stream=True)
                container.start()
                printed = b"".join(output).decode()
                if status := container.wait(timeout=ANSWER_LIMIT_S)["StatusCode"]:
                    raise ImageError(f"a program in {image} ended with {status}: {printed}")
            finally:
                container.remove(force=True)
        return printed

    def load_containers(self, label: str) -> list[FoundContainer]:
        """Containers with this label, `name=value`, in any state. Raises NoEngineError."""
        with _translated(NoEngineError):
            found = self._client.api.containers(all=True, filters={"label": label})
            states = [self._client.api.inspect_container(each["Id"]) for each in found]
        return [_read_container(each) for each in states]

    def load_last_lines(self, name: str, *, count: int) -> str:
        """The last lines of a container's stdout and stderr. Raises NoEngineError, also when it is gone."""
        with _translated(NoEngineError):
            output = cast("bytes", self._client.api.logs(name, tail=count))
        return output.decode(errors="replace")


def _read_container(inspected: Mapping[str, Any]) -> FoundContainer:
    state = inspected["State"]
    return FoundContainer(
        name=str(inspected["Name"]).removeprefix("/"),
        labels=dict(inspected["Config"]["Labels"] or {}),
        state=str(state["Status"]),
        health=str(state["Health"]["Status"]) if state.get("Health") else "",
        exit_code=int(state["ExitCode"]),
    )


def _read_image(image: Any) -> FoundImage:
    attributes = cast("dict[str, Any]", image.attrs)
    return FoundImage(str(image.id), dict(image.labels or {}), tuple(image.tags), str(attributes.get("Created", "")))


@contextlib.contextmanager
def _translated(kind: type[EverturnError] = ImageError) -> Generator[None]:
    try:
        yield
    except (docker_errors.DockerException, OSError) as error:
        raise kind(str(error)) from error
