"""The API of Pods of one namespace as Kubernetes documents it: objects with versions, lists in pages, watches."""

import asyncio
import copy
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import kubernetes_validate
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

NAMESPACE = "runs"
TOKEN = "token-of-the-broker"
VERSIONS = ("1.25", kubernetes_validate.latest_version())
IDLE_S = 0.5

Json = dict[str, Any]


class PodStore:
    """The Pods and the changes of them; everything happens in the loop of the server."""

    def __init__(self) -> None:
        self.pods: dict[str, Json] = {}
        self.changes: list[tuple[int, str, Json]] = []
        self.version = 1
        self.oldest = 0
        self.changed = asyncio.Event()

    def save(self, what: str, pod: Json) -> Json:
        """Record a change and tell the watches."""
        self.version += 1
        pod["metadata"]["resourceVersion"] = str(self.version)
        self.changes.append((self.version, what, copy.deepcopy(pod)))
        self.changed.set()
        self.changed = asyncio.Event()
        return pod

    def compact(self) -> None:
        """Forget the history: watches can't go on from an earlier version."""
        self.oldest = self.version
        self.changes.clear()


class PodsApp:
    """`begin` and `end` are the node's; `failing` are statuses of the next answers; `accepts` is the valid token."""

    def __init__(self, store: PodStore, begin: Callable[[Json], None], end: Callable[[str], Awaitable[None]]) -> None:
        self.store = store
        self.failing: list[int] = []
        self.lost_answers = 0
        self.quota_conflicts = 0
        self.refusal: tuple[int, str] | None = None
        self.token = TOKEN
        self.page_size = 2
        self.calls: list[str] = []
        self.hang_ups = 0
        self._begin = begin
        self._end = end
        path = f"/api/v1/namespaces/{NAMESPACE}/pods"
        self.app = Starlette(
            routes=[
                Route(path, self.create, methods=["POST"]),
                Route(path, self.load_all, methods=["GET"]),
                Route(f"{path}/{{name}}", self.load, methods=["GET"]),
                Route(f"{path}/{{name}}", self.delete, methods=["DELETE"]),
            ]
        )

    def _refuse(self, request: Request, verb: str) -> Response | None:
        self.calls.append(verb)
        if request.headers.get("authorization") != f"Bearer {self.token}":
            return status(401, "Unauthorized")
        if self.failing:
            return status(self.failing.pop(0), "the server is overloaded")
        return None

    async def create(self, request: Request) -> Response:
        if refused := self._refuse(request, "create"):
            return refused
        if self.quota_conflicts:
            self.quota_conflicts -= 1
            why = 'Operation cannot be fulfilled on resourcequotas "pods": the object has been modified'
            return status(409, why, "Conflict")
        if self.refusal:
            return status(*self.refusal)
        pod = await request.json()
        try:
            for version in VERSIONS:
                kubernetes_validate.validate(pod, version, strict=True)
        except kubernetes_validate.ValidationError as error:
            return status(422, f"Pod is invalid: {error}")
        name = pod["metadata"]["name"]
        if name in self.store.pods:
            return status(409, f'pods "{name}" already exists', "AlreadyExists")
        pod["metadata"] |= {"namespace": NAMESPACE, "uid": name}
        pod["status"] = {"phase": "Pending"}
        self.store.pods[name] = pod
        self.store.save("ADDED", pod)
        answer = copy.deepcopy(pod)
        self._begin(pod)
        if self.lost_answers:
            self.lost_answers -= 1
            return status(504, "the answer was lost")
        return JSONResponse(answer, 201)

    async def load(self, request: Request) -> Response:
        if refused := self._refuse(request, "get"):
            return refused
        pod = self.store.pods.get(request.path_params["name"])
        return JSONResponse(pod) if pod else status(404, "pods not found")

    async def delete(self, request: Request) -> Response:
        if refused := self._refuse(request, "delete"):
            return refused
        options = json.loads(await request.body())
        if options != {"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0}:
            return status(400, f"only a Pod can be deleted at once, not with {options}")
        return (
            JSONResponse(pod) if (pod := await self.remove(request.path_params["name"])) else status(404, "not found")
        )

    async def remove(self, name: str, *, forget: bool = False) -> Json | None:
        """Delete a Pod, as a caller or anybody else does; with `forget`, no watch reports it."""
        if (pod := self.store.pods.pop(name, None)) is None:
            return None
        self.store.save("DELETED", pod)
        if forget:
            self.store.compact()
        await self._end(name)
        return pod

    async def load_all(self, request: Request) -> Response:
        watches = request.query_params.get("watch") == "1"
        if refused := self._refuse(request, "watch" if watches else "list"):
            return refused
        selects = build_selector(request)
        if watches:
            version = int(request.query_params["resourceVersion"])
            if version < self.store.oldest:
                return status(410, "too old resource version")
            return StreamingResponse(self._watch(version, selects), media_type="application/json")
        found = [pod for pod in self.store.pods.values() if selects(pod)]
        begin = int(request.query_params.get("continue", "0"))
        end = begin + min(self.page_size, int(request.query_params["limit"]))
        metadata = {"resourceVersion": str(self.store.version)} | ({"continue": str(end)} if end < len(found) else {})
        return JSONResponse({"kind": "PodList", "apiVersion": "v1", "metadata": metadata, "items": found[begin:end]})

    async def _watch(self, version: int, selects: Callable[[Json], bool]) -> AsyncIterator[str]:
        hang_ups = self.hang_ups
        while True:
            if version < self.store.oldest:
                error = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 410, "message": "too old"}
                yield json.dumps({"type": "ERROR", "object": error}) + "\n"
                return
            changed = self.store.changed
            for number, what, pod in [*self.store.changes]:
                if number > version and selects(pod):
                    line = json.dumps({"type": what, "object": pod}) + "\n"
                    # In two pieces, as a network may cut it.
                    yield line[:100]
                    yield line[100:]
            version = self.store.version
            if hang_ups != self.hang_ups:
                yield '{"type": "MODIFIED", "obj'
                return
            try:
                async with asyncio.timeout(IDLE_S):
                    await changed.wait()
            except TimeoutError:
                bookmark = {"kind": "Pod", "apiVersion": "v1", "metadata": {"resourceVersion": str(version)}}
                yield json.dumps({"type": "BOOKMARK", "object": bookmark}) + "\n"


def build_selector(request: Request) -> Callable[[Json], bool]:
    """`labelSelector` with a label or a label and its value, `fieldSelector` with a name."""
    key, _, value = request.query_params.get("labelSelector", "").partition("=")
    name = request.query_params.get("fieldSelector", "").removeprefix("metadata.name=")

    def selects(pod: Json) -> bool:
        metadata = pod["metadata"]
        found = metadata["labels"].get(key) if key else value
        return (found == value if value else found is not None) and name in ("", metadata["name"])

    return selects


def status(code: int, message: str, reason: str = "") -> JSONResponse:
    """A status object."""
    fields = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": message, "reason": reason}
    return JSONResponse(fields, code)
