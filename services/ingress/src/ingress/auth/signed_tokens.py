"""Tokens that this server signs: guest tokens for people without an account, tickets for one conversation's events, for
the files of a widget, and for an embedded chat."""

import base64
import binascii
import hmac
import json
import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, cast, get_args

from everturn.core.clock import Clock
from everturn.core.identity import Principal, Role
from everturn.core.ids import ConversationId
from everturn.limits.token_buckets import BucketTable, Limit
from ingress.auth.callers import Caller, Proof, build_record, read_record
from ingress.errors import absent, forbidden, too_many, unauthorized
from ingress.settings import MIN_SECRET_BYTES

MAX_SIGNED_CHARS = 2048

Purpose = Literal["evt_", "evg_", "evw_", "eve_", "evs_"]
"""The prefix identifies the purpose of a signed text: `evt_` opens an event stream, `evg_` is a guest token,
`evw_` reads the files of a widget, `eve_` opens an embedded chat, once, and `evs_` is its bearer token."""

GUEST_S = 30 * 86_400
"""How long a guest can return to its conversations with its token, in seconds."""
GUEST_PREFIX = "guest~"
"""The prefix of guests' user names; no other credential can name such a user."""
GUEST_TOKEN_PREFIX = "evg_"  # noqa: S105 - it begins tokens, and is none
WINDOW_S = 60.0

Scope = tuple[str, str]

TICKET_S = 300
"""How long a ticket opens a stream (api.md), in seconds of this server's clock."""
EMBED_TICKET_S = 120
"""How long a page has to open an embedded chat with its ticket, in seconds."""
EMBED_SESSION_S = 8 * 3600
"""How long an embedded chat can be used before its page needs a new ticket, in seconds: a day at work."""
SESSION_PREFIX = "evs_"
WIDGET_S = 3600
"""The files of a widget can be read until the end of the next such period, in seconds: all tickets of a period are the
same, so browsers keep the files."""


class TokenSigner:
    """Creates and verifies small signed values, which the server then does not have to store.

    A signed text is `<prefix><payload>.<mac>`: JSON in base64url, and an HMAC-SHA256 over prefix and payload. Each
    purpose has its own key, derived from one secret that all nodes share. Keys are never exposed.
    """

    def __init__(self, secret: bytes) -> None:
        """Raises ValueError for a secret with less than 256 bits."""
        if len(secret) < MIN_SECRET_BYTES:
            raise ValueError(f"The signing secret needs at least {MIN_SECRET_BYTES} bytes.")
        self._keys = {purpose: _derive(secret, purpose) for purpose in get_args(Purpose)}

    def build(self, purpose: Purpose, value: dict[str, Any]) -> str:
        """Seal a JSON value."""
        plain = json.dumps(value, separators=(",", ":"), sort_keys=True).encode()
        payload = base64.urlsafe_b64encode(plain).decode().rstrip("=")
        return f"{purpose}{payload}.{self._sign(purpose, payload)}"

    def try_read(self, purpose: Purpose, signed: str) -> dict[str, Any] | None:
        """Return the value; None for a text that was not signed here, was signed for another purpose, or was
        changed."""
        if not signed.startswith(purpose) or len(signed) > MAX_SIGNED_CHARS or not signed.isascii():
            return None
        payload, dot, mac = signed[len(purpose) :].partition(".")
        if not dot or not hmac.compare_digest(mac, self._sign(purpose, payload)):
            return None
        try:
            value = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
        except (binascii.Error, ValueError):
            return None
        return cast(dict[str, Any], value) if isinstance(value, dict) else None

    def derive_name(self, text: str) -> str:
        """A name for a text, which reveals nothing of it: 32 hexadecimal digits."""
        return hmac.digest(self._keys["eve_"], text.encode(), "sha256").hex()[:32]

    def _sign(self, purpose: Purpose, payload: str) -> str:
        mac = hmac.digest(self._keys[purpose], f"{purpose}{payload}".encode(), "sha256")
        return base64.urlsafe_b64encode(mac).decode().rstrip("=")


def _derive(secret: bytes, purpose: str) -> bytes:
    return hmac.digest(secret, f"everturn seal {purpose}".encode(), "sha256")


@dataclass(frozen=True, slots=True)
class GuestPass:
    """A guest's token and user name, and the Unix time at which the token expires."""

    token: str
    user_id: str
    expires_at: float


class Guests:
    """Creates and recognizes guests. Owns the count of those that this process created within the last minute.

    `scopes` are the tenants and projects that accept guests; without any, every guest token is invalid.
    """

    def __init__(
        self,
        signer: TokenSigner,
        clock: Clock,
        *,
        scopes: frozenset[Scope] = frozenset(),
        per_minute: int = 60,
        per_minute_of_address: int = 60,
        entropy: Callable[[int], bytes] = os.urandom,
    ) -> None:
        self._signer = signer
        self._clock = clock
        self._scopes = scopes
        self._per_minute = per_minute
        self._entropy = entropy
        self._window = (0.0, 0)
        self._of_address = Limit(per_minute_of_address, int(WINDOW_S))
        self._addresses = BucketTable(monotonic=clock.monotonic)

    def check_open(self, tenant: str, project: str) -> None:
        """Raises 403 if no scope accepts guests, 404 for other scopes."""
        if not self._scopes:
            raise forbidden("This server does not accept guests.")
        if (tenant, project) not in self._scopes:
            raise absent()

    def admit(self, tenant: str, project: str, address: str = "") -> GuestPass:
        """Create a guest. Raises what `check_open` does, and 429 when too many were created."""
        self.check_open(tenant, project)
        self._check_address(address)
        self._count()
        now = self._clock.now().timestamp()
        who = Principal(tenant, project, GUEST_PREFIX + self._entropy(16).hex(), frozenset({Role.ANONYMOUS}))
        caller = Caller(who, now + GUEST_S, Proof("guest", issued_at=now))
        return GuestPass(self._signer.build(GUEST_TOKEN_PREFIX, build_record(caller)), who.user_id, now + GUEST_S)

    def build_visitor(self, tenant: str, project: str, known_as: str | None) -> Caller:
        """A guest whom an authenticated caller brings, the same one for the same name. Raises 403 if this project
        accepts no guests."""
        if (tenant, project) not in self._scopes:
            raise forbidden("This project does not accept guests. An operator can add it to GUEST_SCOPES.")
        now = self._clock.now().timestamp()
        name = self._entropy(16).hex() if known_as is None else self._signer.derive_name(known_as)
        who = Principal(tenant, project, GUEST_PREFIX + name, frozenset({Role.ANONYMOUS}))
        return Caller(who, now + GUEST_S, Proof("guest", issued_at=now))

    def check(self, token: str) -> Caller:
        """The guest with this token. Raises 401, also if its scope no longer accepts guests."""
        record = self._signer.try_read(GUEST_TOKEN_PREFIX, token)
        if record is None or (record["tenant"], record["project"]) not in self._scopes:
            raise unauthorized("The guest token is invalid.")
        if record["until"] <= self._clock.now().timestamp():
            raise unauthorized("The guest token has expired.")
        return read_record(record)

    def accepts(self, principal: Principal) -> bool:
        """Whether the scope of this guest still accepts guests."""
        return (principal.tenant, principal.project) in self._scopes

    def _check_address(self, address: str) -> None:
        """Limit the guests of one address, so that it can't use up all places."""
        draw = self._addresses.draw(address, self._of_address)
        if not draw.taken:
            raise too_many(
                "Too many guests were created from this address.", retry_after_s=max(1, math.ceil(draw.wait_s))
            )

    def _count(self) -> None:
        began, made = self._window
        now = self._clock.monotonic()
        if made == 0 or now - began >= WINDOW_S:
            began, made = now, 0
        if made >= self._per_minute:
            raise too_many(
                "Too many guests were created at once.", retry_after_s=max(1, int(began + WINDOW_S - now) + 1)
            )
        self._window = (began, made + 1)


@dataclass(frozen=True, slots=True)
class Ticket:
    """A signed text, and the Unix time until which it opens its conversation's stream. A plain EventSource sends it in
    its URL, because it can't send headers."""

    text: str
    expires_at: float


class Tickets:
    """Issues and verifies tickets. A ticket represents the caller who requested it, and expires no later than the
    caller."""

    def __init__(self, signer: TokenSigner, clock: Clock) -> None:
        self._signer = signer
        self._clock = clock

    def build(self, caller: Caller, conversation_id: ConversationId) -> Ticket:
        """Build a ticket for one conversation, with which its stream can be opened repeatedly until the ticket
        expires."""
        expires_at = self._clock.now().timestamp() + TICKET_S
        if caller.expires_at is not None:
            expires_at = min(expires_at, caller.expires_at)
        signed = self._signer.build(
            "evt_", {**build_record(caller), "conversation": conversation_id, "expires": expires_at}
        )
        return Ticket(signed, expires_at)

    def check(self, text: str, *, tenant: str, project: str, conversation_id: str) -> Caller:
        """The caller that a ticket represents. Raises 401 for one that is forged, changed, expired, or for another
        stream."""
        value = self._signer.try_read("evt_", text)
        if value is None:
            raise unauthorized("The ticket is invalid.")
        if value["expires"] <= self._clock.now().timestamp():
            raise unauthorized("The ticket has expired.")
        if (value["tenant"], value["project"], value["conversation"]) != (tenant, project, conversation_id):
            raise unauthorized("The ticket is not for this stream.")
        return read_record(value)


@dataclass(frozen=True, slots=True)
class WidgetPass:
    """The widget of one version of a bundle, and the Unix time until which its files can be read."""

    bundle_id: str
    digest: str
    widget: str
    expires_at: float


class WidgetTickets:
    """Issues and verifies tickets for the files of a widget, which a frame can't request with a header.

    A ticket names no person: the page of the widget, which others have written, sees its own address.
    """

    def __init__(self, signer: TokenSigner, clock: Clock) -> None:
        self._signer = signer
        self._clock = clock

    def build(self, bundle_id: str, digest: str, widget: str) -> Ticket:
        """Build a ticket, the same one for everybody within a period."""
        expires_at = (self._clock.now().timestamp() // WIDGET_S + 2) * WIDGET_S
        value = {"bundle": bundle_id, "digest": digest, "widget": widget, "expires": expires_at}
        return Ticket(self._signer.build("evw_", value), expires_at)

    def try_read(self, text: str) -> WidgetPass | None:
        """What a ticket opens; None for one that is forged, changed or expired."""
        value = self._signer.try_read("evw_", text)
        if value is None or value["expires"] <= self._clock.now().timestamp():
            return None
        return WidgetPass(value["bundle"], value["digest"], value["widget"], value["expires"])


@dataclass(frozen=True, slots=True)
class EmbedPass:
    """For whom a page of `origin` may show the chat of a bundle. `nonce` identifies the ticket."""

    caller: Caller
    bundle_id: str
    origin: str
    nonce: str


class EmbedTickets:
    """Issues and verifies tickets for embedded chats, and the bearer tokens that are given for them.

    A ticket represents a caller, and so does its token, which expires no later than the caller.
    """

    def __init__(self, signer: TokenSigner, clock: Clock, *, entropy: Callable[[int], bytes] = os.urandom) -> None:
        self._signer = signer
        self._clock = clock
        self._entropy = entropy

    def build(self, caller: Caller, bundle_id: str, origin: str) -> Ticket:
        """Build a ticket. That it is used once is for its receiver to check."""
        expires_at = self._clock.now().timestamp() + EMBED_TICKET_S
        value = {"bundle": bundle_id, "origin": origin, "nonce": self._entropy(16).hex(), "expires": expires_at}
        return Ticket(self._signer.build("eve_", {**build_record(caller), **value}), expires_at)

    def check(self, text: str) -> EmbedPass:
        """What a ticket opens. Raises 401 for one that is forged, changed or expired."""
        value = self._signer.try_read("eve_", text)
        if value is None or value["expires"] <= self._clock.now().timestamp():
            raise unauthorized("The ticket for this chat is invalid or has expired. Load the page again.")
        return EmbedPass(read_record(value), value["bundle"], value["origin"], value["nonce"])

    def build_session(self, caller: Caller) -> Ticket:
        """Build the bearer token of an embedded chat."""
        expires_at = self._clock.now().timestamp() + EMBED_SESSION_S
        if caller.expires_at is not None:
            expires_at = min(expires_at, caller.expires_at)
        return Ticket(self._signer.build("evs_", {**build_record(caller), "until": expires_at}), expires_at)

    def check_session(self, token: str) -> Caller:
        """The caller with this token. Raises 401."""
        value = self._signer.try_read("evs_", token)
        if value is None or value["until"] <= self._clock.now().timestamp():
            raise unauthorized("The chat has expired. Load the page again.")
        return read_record(value)
