"""People's own accounts at MCP servers: which are connected, and the links with which they connect one."""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from everturn.core.identity import Principal
from everturn.core.ids import ApprovalId, ConversationId

ALIAS = r"^[a-z][a-z0-9_]{0,19}$"
"""Of a server, as bundle.toml names it. Short, because a provider allows 64 characters for `mcp__<alias>__<tool>`."""
REQUEST_S = 600.0
"""How long a link can be used, and then its code."""
MAX_ANSWERED = 32
"""Approvals that one connected account settles."""


@dataclass(frozen=True, slots=True)
class ServerKey:
    """A server of a bundle. The operator's servers belong to the bundle that offers them."""

    bundle_id: str
    server: str


@dataclass(frozen=True, slots=True)
class StoredTokens:
    """What a worker encrypted; None while one exchanges the code of a new connection, or if it stopped before it had
    the tokens (`is_interrupted`). `version` grows with each renewal; one of a deleted connection does not return."""

    sealed: bytes | None
    version: int
    is_interrupted: bool = False


@dataclass(frozen=True, slots=True)
class ConnectRequest:
    """A link for one approval, by the hash of its secret. The link itself is in the question of the approval, for all
    readers of the conversation: it connects an account for its person only, who has to confirm that."""

    approval_id: ApprovalId
    conversation_id: ConversationId
    state_hash: str
    title: str
    sealed: bytes


@dataclass(frozen=True, slots=True)
class ConnectAnswer:
    """The authorization server's answer to a link, with what the worker that made the link had encrypted. The tokens
    for it replace `version` of the connection."""

    sealed: bytes
    code: str
    issuer: str | None
    version: int


@dataclass(frozen=True, slots=True)
class Connection:
    """A connected account, as its person sees it."""

    bundle_id: str
    server: str
    title: str
    connected_at: datetime


@dataclass(frozen=True, slots=True)
class OpenRequest:
    """Who a link was made for."""

    principal: Principal
    title: str


@dataclass(frozen=True, slots=True)
class AnsweredRequest:
    """The approval that waits for the answer."""

    principal: Principal
    conversation_id: ConversationId
    approval_id: ApprovalId


def hash_state(state: str) -> str:
    """The stored form of a link's secret."""
    return hashlib.sha256(state.encode()).hexdigest()


class TokenStore(Protocol):
    """The tokens of people, for workers. Each call concerns the rows of one person."""

    async def load(self, principal: Principal, key: ServerKey) -> StoredTokens | None:
        """The tokens, and note that they are used: connections that are not used for long are deleted."""
        ...

    async def try_lease(self, principal: Principal, key: ServerKey, version: int, *, lease_s: float) -> bool:
        """Whether the caller may renew the tokens of this version, for so long."""
        ...

    async def replace(self, principal: Principal, key: ServerKey, version: int, sealed: bytes) -> bool:
        """Save new tokens as the next version and end the lease. False if the connection was deleted or made again."""
        ...

    async def release(self, principal: Principal, key: ServerKey, version: int) -> None:
        """End the lease without new tokens."""
        ...

    async def delete_version(self, principal: Principal, key: ServerKey, version: int) -> None:
        """Delete a connection whose tokens are no longer valid, unless it was renewed."""
        ...

    async def save_request(self, principal: Principal, key: ServerKey, request: ConnectRequest) -> bool:
        """Save a link; it replaces an earlier one for the same approval. False, and nothing is saved, if the earlier
        one has an answer that no call has claimed."""
        ...

    async def claim_answer(
        self,
        principal: Principal,
        key: ServerKey,
        *,
        accepts: Callable[[bytes], bool],
        lease_s: float,
        replaced: int | None = None,
    ) -> ConnectAnswer | None:
        """The latest code, if it is younger than REQUEST_S, for one caller only. It is one to a link whose sealed part
        the caller accepts; the codes to those are deleted, others stay for workers with another configuration. A
        connection without tokens keeps the place for so long; `replaced` is the version of a connection whose place it
        takes."""
        ...


class ConnectionBook(Protocol):
    """The connections of people, for themselves."""

    async def load_all(self, principal: Principal) -> Sequence[Connection]:
        """All connections, the latest first, at most 1,000."""
        ...

    async def delete(self, principal: Principal, key: ServerKey | None = None) -> int:
        """Delete one connection or all, with the answers to links; returns the number of connections. Links without an
        answer still work: turns wait for them, and people have to confirm there what they connect."""
        ...

    async def find_request(self, state: str, key: ServerKey, code: str | None) -> OpenRequest | None:
        """Who a link to this server was made for, if it can still be answered with this code."""
        ...

    async def answer_request(
        self, state: str, key: ServerKey, code: str | None, issuer: str | None
    ) -> Sequence[AnsweredRequest]:
        """Save the answer, once; None as the code refuses. A code also answers the other open links of that person to
        the server, the latest MAX_ANSWERED. The same answer again returns the same approvals until the link expires;
        another one returns nothing."""
        ...
