"""The way of an operation of a bundle from an ingress to a worker and back.

A request waits until a worker that runs its bundle takes it, and is executed at most once: it is removed in one step,
either by the worker that takes it or by the ingress that withdraws it. Whatever is lost, an ingress that could withdraw
its request knows that nothing was executed. Losing the data in Redis loses requests and replies, nothing else.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal, Protocol

from pydantic import BaseModel, ConfigDict, ValidationError

from everturn.core.errors import Conflict, Invalid
from everturn.core.identity import Principal, read_roles

MAX_WAITING: Final = 32
"""Requests of one bundle that wait for a worker: 8 MiB, with the longest bodies that an ingress accepts."""
TAKEN_WITHIN_S: Final = 5.0
"""How long an ingress lets a request wait for a worker."""
KEPT_S: Final = TAKEN_WITHIN_S + 10.0
"""A request that nobody has withdrawn expires after this time: its ingress has ended."""
REPLY_KEPT_S: Final = 15.0
"""A reply that nobody has read expires after this time."""

Outcome = Literal[
    "ok", "refused", "invalid", "forbidden", "unknown", "unavailable", "failed", "timeout", "lost", "cancelled"
]
"""`refused` by the author's code; the arguments are `invalid`; `forbidden` for these roles; an `unknown` operation; its
process is `unavailable`; it `failed` with an exception; it did not end before the `timeout`; its process was `lost`;
`cancelled`, because nobody waits. With the last four it may have had an effect."""


class TooManyWaiting(Conflict):
    """Too many requests for operations of this bundle are waiting."""


@dataclass(frozen=True, slots=True)
class OperationRequest:
    """`arguments` is a JSON object as bytes, and `timeout_s` counts from the moment a worker takes the request."""

    request_id: str
    bundle_id: str
    name: str
    principal: Principal
    timeout_s: float
    arguments: bytes

    def write(self) -> bytes:
        """The request as a line of JSON, followed by the arguments."""
        about = self.principal
        header = _RequestHeader(
            request_id=self.request_id,
            bundle_id=self.bundle_id,
            name=self.name,
            tenant=about.tenant,
            project=about.project,
            user_id=about.user_id,
            roles=tuple(sorted(role.value for role in about.roles)),
            timeout_s=self.timeout_s,
        )
        return header.model_dump_json().encode() + b"\n" + self.arguments


@dataclass(frozen=True, slots=True)
class OperationReply:
    """How a request ended. `detail` says why there is no result; `fields` are pairs of an invalid argument and what is
    wrong with it. `result` is JSON as bytes."""

    outcome: Outcome
    result: bytes = b"null"
    detail: str = ""
    fields: tuple[tuple[str, str], ...] = ()

    def write(self) -> bytes:
        """The reply as a line of JSON, followed by the result."""
        header = _ReplyHeader(outcome=self.outcome, detail=self.detail, fields=self.fields)
        return header.model_dump_json().encode() + b"\n" + self.result


class _Header(BaseModel):
    # A newer version may have written more.
    model_config = ConfigDict(frozen=True, extra="ignore")


class _RequestHeader(_Header):
    request_id: str
    bundle_id: str
    name: str
    tenant: str
    project: str
    user_id: str
    roles: tuple[str, ...]
    timeout_s: float


class _ReplyHeader(_Header):
    outcome: Outcome
    detail: str = ""
    fields: tuple[tuple[str, str], ...] = ()


def read_request(written: bytes) -> OperationRequest:
    """Raises Invalid for what another version has written and this one can't read."""
    line, _, arguments = written.partition(b"\n")
    try:
        header = _RequestHeader.model_validate_json(line)
    except ValidationError as error:
        raise Invalid("The request of an operation can't be read.") from error
    principal = Principal(header.tenant, header.project, header.user_id, read_roles(header.roles))
    return OperationRequest(header.request_id, header.bundle_id, header.name, principal, header.timeout_s, arguments)


def read_reply(written: bytes) -> OperationReply:
    """The reply; `lost` if another version has written what this one can't read."""
    line, _, result = written.partition(b"\n")
    try:
        header = _ReplyHeader.model_validate_json(line)
    except ValidationError:
        return OperationReply("lost", detail="The worker's reply can't be read.")
    return OperationReply(header.outcome, result, header.detail, header.fields)


class OperationQueue(Protocol):
    """All calls raise Unavailable when Redis is down."""

    async def send(self, request: OperationRequest) -> None:
        """Let the request wait for a worker. Raises TooManyWaiting."""
        ...

    async def withdraw(self, request: OperationRequest) -> bool:
        """Remove a waiting request. True means that no worker has taken it, nor will."""
        ...

    async def cancel(self, request_id: str) -> None:
        """Tell the worker that has taken the request that nobody waits for it any more."""
        ...

    async def wait_reply(self, request_id: str, *, timeout_s: float) -> OperationReply | None:
        """The reply, which can be read once; None if there is none in time."""
        ...

    async def take(self, bundle_ids: Sequence[str], *, timeout_s: float) -> OperationRequest | None:
        """Take the oldest request of the first of these bundles that has one; None if there is none in time. Raises
        Invalid if it can't be read."""
        ...

    async def reply(self, request_id: str, reply: OperationReply) -> None: ...

    async def wait_cancelled(self, request_id: str, *, timeout_s: float) -> bool:
        """Whether the request was cancelled within this time."""
        ...
