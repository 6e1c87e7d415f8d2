"""A Docker engine: the few calls that the broker makes, through the docker SDK in threads, and its two streams.

Every call has a time limit. A cancelled call that has started completes first, so that its effect is known.
"""

import asyncio
import contextlib
import json
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeVar, cast
from urllib.parse import quote, urlsplit

import docker
from docker import errors as docker_errors

from everturn.core.errors import Invalid
from everturn.execution.broker_messages import KEEPALIVE
from exec_supervisor.broker.docker_bodies import Body
from exec_supervisor.broker.docker_stdio import AttachedStdio
from exec_supervisor.broker.engine import EngineDown, EngineRefused, ImageMissing

CALL_TIMEOUT_S: Final = 30
"""Creating or starting a container takes 0.1 s on an idle machine; far more while twenty start at once."""

CONNECT_TIMEOUT_S: Final = 5.0
THREADS: Final = 16
MAX_EVENT_BYTES: Final = 64 << 10
_MAX_HEAD_LINES: Final = 64
_STREAM_BUFFER_BYTES: Final = 64 << 10

ResultT = TypeVar("ResultT")
Address = str | tuple[str, int]


class NotThere(EngineRefused):
    """The container engine has no such object."""


class InUse(EngineRefused):
    """The container engine is still using the object."""


@dataclass(frozen=True, slots=True)
class LabeledObject:
    """A container or volume with the broker's labels, as a sweep finds it."""

    name: str
    is_volume: bool
    labels: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class EngineEvent:
    """An event of a container. `action` is the engine's name for it: oom, die or destroy."""

    action: str
    attributes: Mapping[str, str]
    at_s: float


class _Client(Protocol):
    """The part of the SDK's client that is used here; the SDK has no types."""

    def create_container_from_config(self, config: Body, name: str) -> dict[str, object]: ...

    def start(self, container: str) -> None: ...

    def inspect_container(self, container: str) -> dict[str, object]: ...

    def remove_container(self, container: str, *, v: bool, force: bool) -> None: ...

    def remove_volume(self, name: str) -> None: ...

    def containers(self, *, all: bool, filters: dict[str, object]) -> list[dict[str, object]]: ...

    def volumes(self, filters: dict[str, object]) -> dict[str, object]: ...

    def close(self) -> None: ...


class DockerEngine:
    """A Docker engine at `unix:///path` or `tcp://host:port`. It connects on first use.

    All calls raise EngineDown if it does not answer, EngineRefused if it rejects the call.
    """

    def __init__(self, address: str, *, threads: int = THREADS, timeout_s: int = CALL_TIMEOUT_S) -> None:
        self._address = parse_address(address)
        self._base_url = address
        self._timeout_s = timeout_s
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="engine")
        self._places = threads
        self._connecting = threading.Lock()
        self._client: _Client | None = None

    def close(self) -> None:
        """Close the connection to the engine; running calls end by their own limit."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        if self._client is not None:
            self._client.close()

    async def create(self, name: str, body: Body) -> None:
        """Create a container. Raises ImageMissing."""
        await self._call(lambda client: client.create_container_from_config(body, name))

    async def start(self, name: str) -> None:
        await self._call(lambda client: client.start(name))

    async def load_image(self, name: str) -> str:
        """The digest of a container's image. Raises NotThere."""
        found = await self._call(lambda client: client.inspect_container(name))
        return str(found["Image"])

    async def kill_and_remove(self, name: str) -> None:
        """Kill and remove a container. Raises NotThere, and InUse while it is being removed."""
        await self._call(lambda client: client.remove_container(name, v=True, force=True))

    async def remove_volume(self, name: str) -> None:
        """Remove a volume. Raises NotThere, InUse."""
        await self._call(lambda client: client.remove_volume(name))

    async def load_labeled(self, label: str) -> list[LabeledObject]:
        """All containers and volumes with this label."""
        wanted: dict[str, object] = {"label": label}
        containers = await self._call(lambda client: client.containers(all=True, filters=wanted))
        volumes = await self._call(lambda client: client.volumes(filters=wanted))
        return [
            *(_read_container(entry) for entry in containers),
            *(_read_volume(entry) for entry in cast("list[dict[str, object]]", volumes.get("Volumes") or [])),
        ]

    async def attach(self, name: str) -> AttachedStdio:
        """The container's streams; its stdin ends when they are closed."""
        target = f"/containers/{quote(name)}/attach?stream=1&stdin=1&stdout=1&stderr=1"
        request = f"POST {target} HTTP/1.1\r\nHost: engine\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n"
        reader, writer = await self._open_stream(request, answers=(101, 200))
        return AttachedStdio(reader, writer)

    @contextlib.asynccontextmanager
    async def watch(self, label: str, since_s: float) -> AsyncGenerator[AsyncIterator[EngineEvent]]:
        """Connect, then yield the events of containers with this label since `since_s`, until the engine
        disconnects."""
        wanted = quote(json.dumps({"type": ["container"], "event": ["oom", "die", "destroy"], "label": [label]}))
        # HTTP 1.0: the response is lines of JSON until its end, without chunked encoding.
        request = f"GET /events?since={since_s:.9f}&filters={wanted} HTTP/1.0\r\nHost: engine\r\n\r\n"
        reader, writer = await self._open_stream(request, answers=(200,))
        with contextlib.closing(writer):
            yield _read_events(reader)

    async def _call(self, do: Callable[[_Client], ResultT]) -> ResultT:
        call = self._threads.submit(self._do, do)
        running = asyncio.wrap_future(call)
        # Nobody reads the error of a call that was cancelled, and asyncio would log that.
        running.add_done_callback(_read_error)
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            if not call.cancel():  # it has already started
                await asyncio.wait((running,))
            raise

    def _do(self, do: Callable[[_Client], ResultT]) -> ResultT:
        """Make one call, in a thread, and translate the SDK's errors; those of its HTTP client are OSErrors."""
        try:
            return do(self._connect())
        except docker_errors.ImageNotFound as error:
            raise ImageMissing(_explain(error)) from error
        except docker_errors.NotFound as error:
            raise NotThere(_explain(error)) from error
        except docker_errors.APIError as error:
            raise (InUse if error.status_code == 409 else EngineRefused)(_explain(error)) from error
        except (docker_errors.DockerException, OSError) as error:
            raise EngineDown(str(error)) from error

    def _connect(self) -> _Client:
        # With a time limit: if the engine never answers, the calls of all threads wait here for one.
        if not self._connecting.acquire(timeout=self._timeout_s):
            raise EngineDown("it did not respond in time")
        try:
            if self._client is None:
                connected = docker.APIClient(
                    self._base_url, version="auto", timeout=self._timeout_s, max_pool_size=self._places
                )
                self._client = cast("_Client", connected)
            return self._client
        finally:
            self._connecting.release()

    async def _open_stream(
        self, request: str, *, answers: tuple[int, ...]
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Open a connection on which the engine has accepted the request; what follows the response head is unread."""
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                reader, writer = await _open_connection(self._address)
            try:
                async with asyncio.timeout(self._timeout_s):
                    writer.write(request.encode("ascii"))
                    await _check_answer(reader, answers)
            except BaseException:
                writer.transport.abort()
                raise
        except (OSError, TimeoutError, ValueError) as error:
            raise EngineDown(str(error) or "it did not respond in time") from error
        return reader, writer


def parse_address(address: str) -> Address:
    """The path of a Unix socket, or host and port. Raises Invalid."""
    parts = urlsplit(address)
    if parts.scheme == "unix" and parts.path.startswith("/") and not parts.netloc:
        return parts.path
    if parts.scheme in ("tcp", "http") and parts.hostname and parts.port and parts.path in ("", "/"):
        return parts.hostname, parts.port
    raise Invalid(f"DOCKER_HOST is {address!r}; expected unix:///path or tcp://host:port")


def parse_event(line: bytes) -> EngineEvent:
    """One line of the engine's event stream. Raises ValueError."""
    event = cast("dict[str, object]", json.loads(line))
    actor = cast("dict[str, object]", event.get("Actor") or {})
    attributes = cast("dict[str, str]", actor.get("Attributes") or {})
    return EngineEvent(str(event.get("Action", "")), attributes, cast("int", event.get("timeNano", 0)) / 1e9)


def _read_error(call: asyncio.Future[Any]) -> None:
    if not call.cancelled():
        call.exception()


async def _open_connection(address: Address) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    limit = max(MAX_EVENT_BYTES, _STREAM_BUFFER_BYTES)
    if isinstance(address, str):
        return await asyncio.open_unix_connection(address, limit=limit)
    reader, writer = await asyncio.open_connection(*address, limit=limit)
    # Nothing is sent on a stream of events: without these options, one whose other end has vanished would never end.
    for level, option, value in KEEPALIVE:
        writer.get_extra_info("socket").setsockopt(level, option, value)
    return reader, writer


async def _read_events(reader: asyncio.StreamReader) -> AsyncIterator[EngineEvent]:
    try:
        while line := await reader.readline():
            yield parse_event(line)
    except (OSError, ValueError) as error:
        raise EngineDown(f"its event stream was interrupted: {error}") from error


async def _check_answer(reader: asyncio.StreamReader, answers: tuple[int, ...]) -> None:
    """Read the head of a response. Raises NotThere, EngineRefused, ValueError if it is not HTTP."""
    words = (await reader.readline()).split(None, 2)
    if len(words) < 2 or not words[0].startswith(b"HTTP/1."):
        raise ValueError("its response is not HTTP")
    for _ in range(_MAX_HEAD_LINES):
        if not (await reader.readline()).strip():
            break
    status = int(words[1])
    if status not in answers:
        detail = (await reader.read(1024)).decode("utf-8", "replace").strip()
        raise (NotThere if status == 404 else EngineRefused)(detail or f"status {status}")


def _explain(error: docker_errors.APIError) -> str:
    return str(error.explanation or error)


def _read_container(entry: dict[str, object]) -> LabeledObject:
    [name, *_] = cast("list[str]", entry.get("Names") or [entry["Id"]])
    return LabeledObject(name.lstrip("/"), False, cast("dict[str, str]", entry.get("Labels") or {}))


def _read_volume(entry: dict[str, object]) -> LabeledObject:
    return LabeledObject(str(entry["Name"]), True, cast("dict[str, str]", entry.get("Labels") or {}))
