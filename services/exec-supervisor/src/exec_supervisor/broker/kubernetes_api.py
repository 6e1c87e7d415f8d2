"""The Pods of one namespace, through the REST API of Kubernetes: create, get, list, delete and watch.

Every call has a time limit. A request that is on its way when its call is cancelled completes first, so that its effect
is known.
"""

import asyncio
import contextlib
import json
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, TypeVar

import httpx2
from pydantic import BaseModel, ValidationError

from everturn.core.errors import Invalid
from everturn.execution.broker_messages import KEEPALIVE
from exec_supervisor.broker.engine import EngineDown, EngineRefused, NoCapacity
from exec_supervisor.broker.kubernetes_pods import Pod, PodList

CALL_TIMEOUT_S: Final = 10.0
CONNECT_TIMEOUT_S: Final = 5.0
TRIES: Final = 4
"""Attempts of a call while the API is overloaded or away."""
FIRST_PAUSE_S: Final = 0.1
LONGEST_PAUSE_S: Final = 2.0
"""Limits also the pause that the API asks for."""

WATCH_S: Final = 300
"""After this time the API ends a watch, and the next one goes on from there."""
MAX_EVENT_BYTES: Final = 1 << 20
"""A Pod of ours has about 10 kB."""
PAGE_PODS: Final = 100
"""A page of ours is about 1 MB, which is parsed in 5 ms."""
MAX_PAGES: Final = 100
MAX_CONNECTIONS: Final = 2048
"""One per call and per pair that boots."""

_CONFLICT: Final = 409
_AGAIN: Final = frozenset({429, 500, 502, 503, 504})

Json = dict[str, Any]
ResultT = TypeVar("ResultT")
ObjectT = TypeVar("ObjectT", bound=BaseModel)


class NotThere(EngineRefused):
    """The cluster has no such Pod."""


class VersionGone(EngineRefused):
    """The cluster no longer knows what has changed since this version."""


@dataclass(frozen=True, slots=True)
class ClusterAccess:
    """Where the API is, and as whom to call it. The files of `account_dir` are those that a Pod gets of its service
    account: token, ca.crt and namespace. The token is read for each call, because it is renewed."""

    url: str
    account_dir: Path
    namespace: str = ""


@dataclass(frozen=True, slots=True)
class PodEvent:
    """A change of a Pod: `pod` is what is known of it afterwards, or before it was deleted; None if only the version
    has changed."""

    what: Literal["changed", "deleted"]
    pod: Pod | None
    version: str


class KubernetesApi:
    """All calls raise EngineDown if the API does not answer, EngineRefused if it rejects the call."""

    def __init__(self, access: ClusterAccess) -> None:
        """Raises Invalid if the files of the service account can't be used."""
        self._token_file = access.account_dir / "token"
        try:
            namespace = access.namespace or (access.account_dir / "namespace").read_text(encoding="ascii").strip()
            authority = ssl.create_default_context(cafile=str(access.account_dir / "ca.crt"))
            self._token_file.read_bytes()
        except (OSError, ValueError) as error:
            raise Invalid(f"The files in KUBERNETES_ACCOUNT_DIR can't be used: {error}") from error
        self._pods = f"/api/v1/namespaces/{namespace}/pods"
        self._client = httpx2.AsyncClient(
            base_url=access.url,
            transport=httpx2.AsyncHTTPTransport(
                verify=authority,
                trust_env=False,
                limits=httpx2.Limits(max_connections=MAX_CONNECTIONS, max_keepalive_connections=20),
                socket_options=KEEPALIVE,
            ),
            timeout=httpx2.Timeout(CALL_TIMEOUT_S, connect=CONNECT_TIMEOUT_S),
            trust_env=False,
        )

    async def aclose(self) -> None:
        await self._client.aclose()

    async def create(self, name: str, body: Json) -> Pod:
        """Create a Pod whose name nobody else uses, and return it. Raises NoCapacity if a quota is used up."""
        answer = await self._call("POST", self._pods, body=body)
        # An earlier attempt, whose answer was lost, may have created it.
        return await self.load(name) if _exists(answer) else _read(answer, Pod)

    async def load(self, name: str) -> Pod:
        """A Pod. Raises NotThere."""
        return _read(await self._call("GET", f"{self._pods}/{name}"), Pod)

    async def delete(self, name: str) -> None:
        """Delete a Pod at once. Raises NotThere."""
        body: Json = {"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0}
        _check(await self._call("DELETE", f"{self._pods}/{name}", body=body))

    async def load_all(self, labels: str) -> tuple[list[Pod], str]:
        """The Pods with these labels, and the version of the list."""
        pods: list[Pod] = []
        params = {"labelSelector": labels, "limit": str(PAGE_PODS)}
        for _ in range(MAX_PAGES):
            page = _read(await self._call("GET", self._pods, params=params), PodList)
            pods += page.items or []
            if not page.metadata.rest:
                return pods, page.metadata.resource_version
            params["continue"] = page.metadata.rest
        raise EngineRefused(f"there are more than {MAX_PAGES * PAGE_PODS} Pods with the labels {labels}")

    @contextlib.asynccontextmanager
    async def watch(self, selector: Mapping[str, str], version: str) -> AsyncGenerator[AsyncIterator[PodEvent]]:
        """Connect, then yield what changes after `version`, until the API ends the watch. Events without a Pod only
        tell how far it has come.

        Raises VersionGone, also while it is read.
        """
        params = {
            "watch": "1",
            "resourceVersion": version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(WATCH_S),
            **selector,
        }
        request = self._client.build_request(
            "GET",
            self._pods,
            params=params,
            headers=await self._build_headers(),
            timeout=httpx2.Timeout(CALL_TIMEOUT_S, connect=CONNECT_TIMEOUT_S, read=WATCH_S + CALL_TIMEOUT_S),
        )
        try:
            async with asyncio.timeout(CALL_TIMEOUT_S):
                response = await self._client.send(request, stream=True)
        except (httpx2.RequestError, TimeoutError) as error:
            raise EngineDown(_describe(error)) from error
        try:
            if response.status_code != 200:
                await _read_refusal(response)
            yield _read_events(response)
        finally:
            await response.aclose()

    async def _call(
        self, method: str, path: str, *, params: Mapping[str, str] | None = None, body: Json | None = None
    ) -> httpx2.Response:
        """Make a call, again after a pause while the API is overloaded or away, or others change the same quota."""
        pause_s, problem = FIRST_PAUSE_S, ""
        for number in range(TRIES):
            if number:
                await asyncio.sleep(min(pause_s, LONGEST_PAUSE_S))
                pause_s = FIRST_PAUSE_S * 2**number
            headers = await self._build_headers()
            try:
                answer = await _complete(self._client.request(method, path, params=params, json=body, headers=headers))
            except httpx2.RequestError as error:
                problem = _describe(error)
                continue
            if answer.status_code not in _AGAIN and (answer.status_code != _CONFLICT or _exists(answer)):
                return answer
            problem = _explain(answer)
            with contextlib.suppress(ValueError):
                pause_s = float(answer.headers.get("Retry-After", pause_s))
        raise EngineDown(problem)

    async def _build_headers(self) -> dict[str, str]:
        try:
            token = await asyncio.to_thread(self._token_file.read_text, encoding="ascii")
        except (OSError, ValueError) as error:
            raise EngineDown(f"the token of the service account can't be read: {error}") from error
        return {"Authorization": f"Bearer {token.strip()}", "Accept": "application/json"}


async def _complete(request: Coroutine[Any, Any, ResultT]) -> ResultT:
    """The request's answer. If this is cancelled, wait for the answer before."""
    sending = asyncio.ensure_future(request)
    try:
        return await asyncio.shield(sending)
    except asyncio.CancelledError:
        await asyncio.wait((sending,), timeout=CALL_TIMEOUT_S)
        if sending.done() and not sending.cancelled():
            sending.exception()
        raise


def _read(answer: httpx2.Response, kind: type[ObjectT]) -> ObjectT:
    """The object of a successful answer. Raises as `_check` does, and EngineDown if it can't be read."""
    _check(answer)
    try:
        return kind.model_validate_json(answer.content)
    except ValidationError as error:
        raise EngineDown(f"its answer can't be read: {_describe_invalid(error)}") from error


def _check(answer: httpx2.Response) -> None:
    """Raise NotThere, VersionGone, NoCapacity or EngineRefused unless the answer is a success."""
    if answer.is_success:
        return
    detail = _explain(answer)
    match answer.status_code:
        case 404:
            raise NotThere(detail)
        case 410:
            raise VersionGone(detail)
        case 403 if "exceeded quota" in detail:
            raise NoCapacity(detail)
        case _:
            raise EngineRefused(detail)


def _exists(answer: httpx2.Response) -> bool:
    """Whether an object was not created because it is there. A quota that others change meanwhile is a conflict too."""
    if answer.status_code != _CONFLICT:
        return False
    with contextlib.suppress(ValueError, AttributeError):
        return answer.json().get("reason") == "AlreadyExists"
    return False


async def _read_refusal(response: httpx2.Response) -> None:
    """Raise what the answer to a watch says instead of events."""
    try:
        async with asyncio.timeout(CALL_TIMEOUT_S):
            await response.aread()
    except (httpx2.RequestError, TimeoutError) as error:
        raise EngineDown(_describe(error)) from error
    if response.status_code in _AGAIN:
        raise EngineDown(_explain(response))
    _check(response)
    raise EngineRefused(f"status {response.status_code}")


async def _read_events(response: httpx2.Response) -> AsyncIterator[PodEvent]:
    """The lines of a watch, each a JSON object. Raises VersionGone, EngineDown."""
    pending = bytearray()
    try:
        async for piece in response.aiter_bytes():
            pending += piece
            *lines, rest = pending.split(b"\n")
            pending = bytearray(rest)
            for line in lines:
                if line.strip():
                    yield parse_event(bytes(line))
            if len(pending) > MAX_EVENT_BYTES:
                raise EngineDown(f"an event of its watch has more than {MAX_EVENT_BYTES} bytes")
    except httpx2.RequestError as error:
        raise EngineDown(f"its watch was interrupted: {_describe(error)}") from error
    if pending.strip():
        raise EngineDown("its watch ended in the middle of an event")


def parse_event(line: bytes) -> PodEvent:
    """One line of a watch. Raises VersionGone, EngineDown."""
    try:
        event: Json = json.loads(line)
        what, found = str(event["type"]), event["object"]
        if what == "ERROR":
            raise (VersionGone if found.get("code") == 410 else EngineDown)(str(found.get("message", ""))[:1000])
        if what == "BOOKMARK":
            return PodEvent("changed", None, str(found["metadata"]["resourceVersion"]))
        pod = Pod.model_validate(found)
    except ValidationError as error:
        raise EngineDown(f"an event of its watch can't be read: {_describe_invalid(error)}") from error
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise EngineDown(f"an event of its watch can't be read: {error}") from error
    return PodEvent("deleted" if what == "DELETED" else "changed", pod, pod.version)


def _explain(answer: httpx2.Response) -> str:
    """The message of a status object, or the number."""
    with contextlib.suppress(ValueError, AttributeError):
        if message := answer.json().get("message"):
            return str(message)[:1000]
    return f"status {answer.status_code}"


def _describe(error: Exception) -> str:
    return str(error) or type(error).__name__


def _describe_invalid(error: ValidationError) -> str:
    """The first problem with its place."""
    problem = error.errors(include_url=False, include_input=False)[0]
    return f"{'.'.join(map(str, problem['loc']))}: {problem['msg']}"
