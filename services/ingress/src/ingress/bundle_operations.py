"""Operations of bundles: methods of their workflows that widgets and other programs call without a turn. A worker
executes them."""

import asyncio
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal, cast

import structlog
from fastapi import APIRouter, Body, Depends, Path, Request, Response
from pydantic import Field

from everturn.bundles.operations import (
    TAKEN_WITHIN_S,
    OperationQueue,
    OperationReply,
    OperationRequest,
    TooManyWaiting,
)
from everturn.bundles.registry import BundleListing, OperationListing
from everturn.core.cancellation import Ran, run_until
from everturn.core.errors import Unavailable, problem
from everturn.core.identity import Principal
from ingress.admission.idempotency import HEADER as IDEMPOTENCY_KEY
from ingress.admission.route import AdmittedRoute
from ingress.admission.slots import OpenSlots
from ingress.auth.gate import Me
from ingress.bundles import MAX_NAMED, Bundles, load_bundles
from ingress.errors import (
    ProblemError,
    forbidden,
    malformed,
    operation_problem,
    unavailable,
    unprocessable,
)
from ingress.fields import JsonBody
from ingress.openapi.responses import problems

_log = structlog.get_logger(__name__)

OPEN: Final = 32
"""Operations for which a process waits: each has a connection to Redis, and up to 1.25 MiB of arguments and result."""
OPEN_OF_PERSON: Final = 2
"""Fewer than the 4 of one bundle that a worker executes at once: one person can't keep all others waiting."""
REPLY_GRACE_S: Final = 5.0
"""How much longer than its time limit an operation is waited for, on its way to the worker's process and back."""
_CLOSED: Final = 499
"""The status of a request whose client has gone; nobody reads it."""

_EFFECTS: Final[Mapping[str, str]] = {
    "pure": "It has no effect, so it can be repeated.",
    "idempotent": "It may have had an effect, and can be repeated.",
}
_UNKNOWN_EFFECT: Final = "It may have had an effect: find out before you repeat it."
NOT_EXECUTED: Final = "It was not executed."

router = APIRouter(
    prefix="/bundles/{tenant}/{project}/{bundle_id}/operations", route_class=AdmittedRoute, tags=["bundles"]
)


class OperationOut(JsonBody):
    """An operation of a bundle that the caller may call."""

    name: str = Field(examples=["list_tickets"])
    """Its name in the path of a call."""
    summary: str = Field(examples=["The open tickets of a person."])
    """What it does, in a sentence."""
    parameters: dict[str, Any] = Field(examples=[{"type": "object", "properties": {}}])
    """The JSON schema of its arguments."""
    effect: Literal["pure", "idempotent", "irreversible"] = Field(examples=["pure"])
    """What repeating a call would do: nothing, the same again, or something that can't be undone."""
    timeout_s: float = Field(examples=[30.0])
    """Its time limit in seconds."""


class OperationList(JsonBody):
    """The operations of a bundle that the caller may call, by name."""

    operations: tuple[OperationOut, ...]
    """The operations, by name."""


class OperationResult(JsonBody):
    """What an operation has returned."""

    result: Any = Field(examples=[{"tickets": ["T-1"]}])
    """The result, any JSON value of at most 1 MiB."""


@dataclass(frozen=True, slots=True)
class OperationCaller:
    """Lets workers execute operations. `slots` limits how many are open in this process."""

    queue: OperationQueue
    slots: OpenSlots

    async def call(self, request: OperationRequest, effect: str) -> bytes:
        """The result, as JSON. Raises problems that say whether the operation may have had an effect."""
        try:
            reply = await self._execute(request)
        except asyncio.CancelledError:
            await self._give_up(request)
            raise
        except TooManyWaiting as error:
            raise unavailable(f"{error} {NOT_EXECUTED}") from error
        except Unavailable as error:
            _log.warning("Lost an operation of a bundle", request_id=request.request_id, error=str(error))
            if await self._give_up(request):
                raise unavailable(f"A component of the service does not respond. {NOT_EXECUTED}") from error
            reply = OperationReply("lost")
        if reply is None:
            raise unavailable(f"No worker has taken the operation within {TAKEN_WITHIN_S:g} s. {NOT_EXECUTED}")
        if reply.outcome == "ok":
            return reply.result
        raise _explain(request, reply, _EFFECTS.get(effect, _UNKNOWN_EFFECT))

    async def _execute(self, request: OperationRequest) -> OperationReply | None:
        """The reply; None if no worker has taken the request."""
        await self.queue.send(request)
        reply = await self.queue.wait_reply(request.request_id, timeout_s=TAKEN_WITHIN_S)
        if reply is not None:
            return reply
        if await self.queue.withdraw(request):
            return None
        reply = await self.queue.wait_reply(request.request_id, timeout_s=request.timeout_s + REPLY_GRACE_S)
        if reply is not None:
            return reply
        await self.queue.cancel(request.request_id)
        return OperationReply("lost")

    async def _give_up(self, request: OperationRequest) -> bool:
        """Withdraw the request or cancel its execution. True means that it was not executed."""
        try:
            if await self.queue.withdraw(request):
                return True
            await self.queue.cancel(request.request_id)
        except Unavailable as error:
            _log.warning("Could not cancel an operation", request_id=request.request_id, error=str(error))
        return False


def _explain(request: OperationRequest, reply: OperationReply, effect: str) -> ProblemError:
    match reply.outcome:
        case "refused":
            return operation_problem("refused", "The operation was refused", 422, reply.detail)
        case "invalid":
            errors = [{"field": f"body.{name}" if name else "body", "message": text} for name, text in reply.fields]
            return unprocessable(f"{errors[0]['field']}: {errors[0]['message']}" if errors else "", errors=errors)
        case "forbidden":
            return forbidden("Your roles don't allow this operation.")
        case "unknown":
            return _unknown_operation(request.name, ())
        case "unavailable":
            return unavailable(f"The process of this bundle's operations does not run. {NOT_EXECUTED}")
        case "timeout":
            text = f"It did not end within {request.timeout_s:g} s and was cancelled. {effect}"
            return operation_problem("timeout", "The operation did not end in time", 504, text)
        case "failed":
            text = f"It failed; the log of the worker says why, for the request {request.request_id}. {effect}"
            return operation_problem("failed", "The operation failed", 500, text)
        case _:
            text = f"The process that executed it has ended, or did not answer. {effect}"
            return operation_problem("lost", "The outcome of the operation is unknown", 502, text)


def _unknown_operation(name: str, known: tuple[str, ...]) -> ProblemError:
    named = f" It has {', '.join(known[:MAX_NAMED])}." if known else ""
    detail = f"The bundle has no operation {name[:60]!a}.{named}"
    return ProblemError(problem("unknown-operation", "The operation is unknown", 404, detail))


async def load_listing(
    me: Me,
    bundles: Annotated[Bundles, Depends(load_bundles)],
    bundle_id: Annotated[str, Path(description="A bundle that `GET /bundles` lists.", examples=["support"])],
) -> BundleListing:
    """The bundle of the path. Raises a 404 problem."""
    return await bundles.load_one(me, bundle_id)


async def load_caller(request: Request) -> OperationCaller:
    """What calls the operations of this application."""
    return cast(OperationCaller, request.app.state.operations)


Listing = Annotated[BundleListing, Depends(load_listing)]


@router.get("", responses=problems())
async def list_bundle_operations(me: Me, listing: Listing) -> OperationList:
    """The operations of a bundle that the caller may call."""
    found = sorted(_list_open(listing, me), key=lambda each: each.name)
    return OperationList(operations=tuple(map(_build_view, found)))


@router.post("/{name}", responses=problems(408, 413, 415, 502, 504), response_model=OperationResult)
async def call_bundle_operation(
    request: Request,
    me: Me,
    listing: Listing,
    name: Annotated[str, Path(description="The operation.", examples=["list_tickets"])],
    caller: Annotated[OperationCaller, Depends(load_caller)],
    body: Annotated[dict[str, Any], Body(description="The arguments by name.", examples=[{"limit": 5}])],
) -> Response:
    """Execute an operation of a bundle and wait for its result. A 503 says that it was not executed; after a 500, 502
    or 504 it may have had an effect. It is cancelled if the connection is closed."""
    del body  # It was checked; the worker gets it as it was sent.
    operation = _find(listing, name, me)
    if IDEMPOTENCY_KEY in request.headers:
        raise malformed("Operations have no Idempotency-Key. Send a key of your own as an argument.")
    wanted = OperationRequest(
        request_id=secrets.token_hex(16),
        bundle_id=listing.id,
        name=name,
        principal=me,
        timeout_s=operation.timeout_s,
        arguments=await request.body(),
    )
    with caller.slots.holding(me):
        ended = await run_until(_wait_disconnected(request), caller.call(wanted, operation.effect))
    if not isinstance(ended, Ran):
        return Response(status_code=_CLOSED)
    # The worker wrote it as JSON: it is not parsed again on this event loop.
    return Response(b'{"result":' + ended.value + b"}", media_type="application/json")


async def _wait_disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        """The body was read before."""


def _find(listing: BundleListing, name: str, principal: Principal) -> OperationListing:
    found = next((each for each in listing.operations if each.name == name), None)
    if found is None:
        raise _unknown_operation(name, tuple(each.name for each in _list_open(listing, principal)))
    if not found.is_open_to(principal):
        raise forbidden("Your roles don't allow this operation.")
    return found


def _list_open(listing: BundleListing, principal: Principal) -> list[OperationListing]:
    return [each for each in listing.operations if each.is_open_to(principal)]


def _build_view(listing: OperationListing) -> OperationOut:
    effect = listing.effect if listing.effect in ("pure", "idempotent") else "irreversible"
    return OperationOut(
        name=listing.name,
        summary=listing.summary,
        parameters=dict(listing.parameters),
        effect=effect,
        timeout_s=listing.timeout_s,
    )
