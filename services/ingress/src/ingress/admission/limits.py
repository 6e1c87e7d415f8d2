"""Limits of what one client can send: rates by role, invalid credentials, and bytes of bodies; `RequestLimits` holds
them."""

import hashlib
import math
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, Generator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import TypeVar, cast

import structlog
from starlette.requests import HTTPConnection
from starlette.types import Scope

from everturn.core.errors import Unavailable
from everturn.core.identity import Principal, Role
from everturn.limits.token_buckets import BucketTable, Draw, Level, Limit, Limits, TokenBuckets, parse_limits
from ingress.admission.connections import load_address
from ingress.bounds import USER_BODIES_PART
from ingress.errors import ProblemError, too_many, unavailable
from ingress.metrics import IngressMetrics
from ingress.settings import IngressSettings

_log = structlog.get_logger(__name__)

WRITES: Limits = {
    Role.ANONYMOUS: Limit(20, 60),
    Role.REGISTERED: Limit(120, 60),
    Role.PAID: Limit(600, 60),
    Role.PRIVILEGED: Limit(3000, 60),
    Role.ADMIN: Limit(3000, 60),
}
READS: Limits = {
    Role.ANONYMOUS: Limit(120, 60),
    Role.REGISTERED: Limit(1200, 60),
    Role.PAID: Limit(6000, 60),
    Role.PRIVILEGED: Limit(12000, 60),
    Role.ADMIN: Limit(12000, 60),
}
STRONGEST_FIRST = (Role.ADMIN, Role.PRIVILEGED, Role.PAID, Role.REGISTERED, Role.ANONYMOUS)

GUEST_PART = 4
"""All guests together hold at most one fourth of a process's limits, because one person can be many guests."""

KNOWN_MAX = 10_000
KNOWN_S = 3600.0

FALLBACK_PART = 4
"""While the shared buckets don't answer, each process grants one fourth of a limit on its own."""
PAUSE_S = 1.0
"""How long the shared buckets are not queried after a failure, so that not every request waits for them."""

NOT_NOW = frozenset({429, 503})
"""With these statuses the call did nothing and the client retries, so its token is given back."""

MCP_PATH = "/mcp/{tenant}/{project}"
"""Each of its requests counts as a read; a call that sends a message counts as a write too."""
EMBEDDING = ("/embed-tickets", "/embed/session")
"""Each load of a page with an embedded chat makes one of each: the one under the limits of the site's key, the other
under those of guests, which all people behind one address share. Nothing is stored for them."""
READING_POSTS = (
    "/fetch",
    "/turns-with-feedbacks",
    "/search",
    "/by-rn",
    "/conversations-in-period",
    "/git-upload-pack",
    MCP_PATH,
    *EMBEDDING,
)

Result = TypeVar("Result", Draw, Level)
Fields = tuple[tuple[bytes, bytes], ...]
GiveBack = Callable[[], Awaitable[Level | None]]

RETRY_AFTER_S = 5
BODY_TIMEOUT_S = 300.0
"""For a whole body: 25 MB in this time is 0.7 Mbit/s, and slow trickling can't hold memory longer."""
BODY_GRACE_S = 20.0
BODY_BYTES_PER_S = 10_000
"""A body can lag behind this rate by the grace time: 80 kbit/s, less than any network on which chats are usable."""
READING_PER_USER = 64
"""Bodies of one user that are read at once. A page sends one, and a program a few."""

DRAWN_KEY = "everturn.drawn"


def strongest_role(roles: frozenset[Role]) -> Role:
    """The role whose limits apply to a principal."""
    return next((role for role in STRONGEST_FIRST if role in roles), Role.ANONYMOUS)


def is_guest(principal: Principal) -> bool:
    """Whether the principal has no account."""
    return strongest_role(principal.roles) is Role.ANONYMOUS


class CredentialGuard:
    """Limits invalid credentials per address, so that guessing is slow.

    Each process counts on its own: guessing must be slow, not counted exactly. Behind a proxy all clients share one
    address. There a credential that this process found valid within the last hour still passes, and only new ones wait.

    Owns the buckets of addresses and the hashes of valid credentials.
    """

    def __init__(self, limit: Limit | None, *, metrics: IngressMetrics, monotonic: Callable[[], float]) -> None:
        self._limit = limit
        self._metrics = metrics
        self._monotonic = monotonic
        self._failures = BucketTable(monotonic=monotonic)
        self._known: OrderedDict[bytes, float] = OrderedDict()

    @contextmanager
    def watching(self, address: str, credential: str) -> Generator[None]:
        """Wrap one check of a credential; an empty one is no guess. Raises a 429 problem."""
        if self._limit is None or not credential:
            yield
            return
        digest = hashlib.sha256(credential.encode()).digest()
        if not self._is_known(digest):
            self._check(address, self._limit)
        try:
            yield
        except ProblemError as refusal:
            if refusal.status_code == 401:
                self._known.pop(digest, None)
                self._failures.draw(address, self._limit)
            raise
        self._keep(digest)

    def _check(self, address: str, limit: Limit) -> None:
        draw = self._failures.peek(address, limit)
        if not draw.taken:
            self._metrics.refusals.labels(reason="credentials", role="none").inc()
            wait_s = max(1, math.ceil(draw.wait_s))
            raise too_many("Too many invalid credentials were sent from this address.", retry_after_s=wait_s)

    def _is_known(self, digest: bytes) -> bool:
        return self._known.get(digest, -math.inf) > self._monotonic()

    def _keep(self, digest: bytes) -> None:
        self._known.pop(digest, None)
        self._known[digest] = self._monotonic() + KNOWN_S
        if len(self._known) > KNOWN_MAX:
            self._known.popitem(last=False)


class Drawn:
    """What one call drew, and the current RateLimit fields of its answer, as in
    draft-ietf-httpapi-ratelimit-headers-10."""

    def __init__(self, policy: str, limit: Limit, level: Level, give_back: GiveBack | None) -> None:
        self._policy = policy
        self._limit = limit
        self._level = level
        self._give_back = give_back

    @property
    def fields(self) -> Fields:
        """RateLimit-Policy and RateLimit as header fields."""
        limit, level = self._limit, self._level
        return (
            (b"ratelimit-policy", f'"{self._policy}";q={limit.tokens};w={limit.window_s}'.encode()),
            (b"ratelimit", f'"{self._policy}";r={level.left};t={math.ceil(level.full_s)}'.encode()),
        )

    async def settle(self, status: int) -> None:
        """Give the token back, once, if the status says that the call did nothing. Takes at most 250 ms."""
        give_back, self._give_back = self._give_back, None
        if give_back is not None and status in NOT_NOW:
            self._level = await give_back() or self._level


class RateGate:
    """Draws a token for each call; all processes of the service share the buckets."""

    def __init__(
        self,
        buckets: TokenBuckets,
        *,
        writes: Limits,
        reads: Limits,
        metrics: IngressMetrics,
        monotonic: Callable[[], float],
    ) -> None:
        self._buckets = buckets
        self._limits = {"writes": writes, "reads": reads}
        self._metrics = metrics
        self._monotonic = monotonic
        self._local = BucketTable(monotonic=monotonic)
        self._pause_until = -math.inf

    async def admit(self, principal: Principal, *, write: bool, address: str, keep: Callable[[Drawn], None]) -> None:
        """Raises a 429 problem with an accurate Retry-After. `keep` receives the draw, even if it got no token."""
        kind, role = "writes" if write else "reads", strongest_role(principal.roles)
        limit = self._limits[kind].get(role)
        if limit is None:
            return
        # A guest can get a new name at any time, so guests are counted by their address.
        key = hash_key(kind, role.value, address if role is Role.ANONYMOUS else principal.limited_as)
        limit, draw, give_back = await self._draw(key, limit)
        keep(Drawn(kind, limit, draw.level, give_back if draw.taken else None))
        if not draw.taken:
            self._metrics.refusals.labels(reason="rate", role=role.value).inc()
            raise too_many(
                f"The limit is {limit.tokens} {kind} per {limit.window_s} s.",
                retry_after_s=max(1, math.ceil(draw.wait_s)),
            )

    async def _draw(self, key: str, limit: Limit) -> tuple[Limit, Draw, GiveBack]:
        draw = await self._try_shared(partial(self._buckets.draw, key, limit))
        if draw is not None:
            return limit, draw, partial(self._try_shared, partial(self._buckets.give_back, key, limit))
        tighter = Limit(max(1, limit.tokens // FALLBACK_PART), limit.window_s)
        self._metrics.local_draws.inc()

        async def give_back() -> Level:
            return self._local.give_back(key, tighter)

        return tighter, self._local.draw(key, tighter), give_back

    async def _try_shared(self, call: Callable[[], Awaitable[Result]]) -> Result | None:
        """None while the shared buckets don't answer; a token that can't be given back then is lost until the bucket
        refills."""
        if self._monotonic() < self._pause_until:
            return None
        try:
            return await call()
        except Unavailable as error:
            _log.warning("Could not reach the shared rate limits and used those of this process", error=str(error))
            self._pause_until = self._monotonic() + PAUSE_S
            return None


def hash_key(*names: str) -> str:
    """A bucket's key; hashing makes it short, and unambiguous whatever the names contain."""
    return hashlib.sha256("\0".join(names).encode()).hexdigest()[:40]


def is_write(method: str, path: str) -> bool:
    """Whether a call on this route counts as a write: everything that is not a GET, except POSTs that only read."""
    return method not in {"GET", "HEAD", "OPTIONS"} and not path.endswith(READING_POSTS)


class BodyBudget:
    """The bytes of bodies that can be in memory: of this process, of one user, and of all guests.

    Counts the bytes read for requests that have not ended; only this object changes the counts.
    """

    def __init__(self, *, max_bytes: int, max_bytes_per_user: int, metrics: IngressMetrics) -> None:
        self._max = max_bytes
        self._max_per_user = max_bytes_per_user
        self._metrics = metrics
        self._max_guests = max_bytes // GUEST_PART
        self._held: Counter[str] = Counter()
        self._reading: Counter[str] = Counter()
        self._guests = 0
        self._total = 0

    @property
    def total(self) -> int:
        return self._total

    def open(self, principal: Principal) -> "BodyHold":
        """Start counting one body."""
        return BodyHold(self, principal)

    def check(self, principal: Principal, more: int) -> None:
        """Raises a 429 problem for the user's cap, 503 for the process's."""
        role = strongest_role(principal.roles).value
        if self._held[principal.limited_as] + more > self._max_per_user:
            text = f"Your open requests would exceed {self._max_per_user} bytes. Wait until one of them ends."
            raise self._refused("user_bodies", role, too_many(text, retry_after_s=RETRY_AFTER_S))
        if self._total + more > self._max or (is_guest(principal) and self._guests + more > self._max_guests):
            text = "This server is receiving too much data. Try again later."
            raise self._refused("bodies", role, unavailable(text, retry_after_s=RETRY_AFTER_S))

    def add(self, principal: Principal, count: int) -> None:
        """Add bytes to the count, or subtract them when `count` is negative."""
        person = principal.limited_as
        self._held[person] += count
        self._total += count
        self._guests += count if is_guest(principal) else 0
        if self._held[person] <= 0:
            del self._held[person]

    @contextmanager
    def reading(self, principal: Principal) -> Generator[None]:
        """Wrap the reading of a body. Raises a 429 problem when the user already sends too many."""
        person = principal.limited_as
        if self._reading[person] >= READING_PER_USER:
            role = strongest_role(principal.roles).value
            text = f"You are already sending {READING_PER_USER} requests. Wait until one of them ends."
            raise self._refused("user_reading", role, too_many(text, retry_after_s=RETRY_AFTER_S))
        self._reading[person] += 1
        try:
            yield
        finally:
            self._reading[person] -= 1
            if not self._reading[person]:
                del self._reading[person]

    def _refused(self, reason: str, role: str, refusal: ProblemError) -> ProblemError:
        self._metrics.refusals.labels(reason=reason, role=role).inc()
        return refusal


class BodyHold:
    """The bytes of one request's body, or of the messages of one socket."""

    def __init__(self, budget: BodyBudget, principal: Principal) -> None:
        self._budget = budget
        self._principal = principal
        self._bytes = 0

    def reading(self) -> AbstractContextManager[None]:
        """Wrap the reading of the body. Raises the problem of `BodyBudget.reading`."""
        return self._budget.reading(self._principal)

    def check_announced(self, count: int) -> None:
        """Raises the problems of `BodyBudget.check` when the announced bytes have no room."""
        self._budget.check(self._principal, count)

    def grow(self, count: int) -> None:
        """Count received bytes. Raises the problems of `BodyBudget.check`."""
        self._budget.check(self._principal, count)
        self._budget.add(self._principal, count)
        self._bytes += count

    def shrink(self, count: int) -> None:
        """Stop counting these bytes; does nothing after `release`."""
        count = min(count, self._bytes)
        self._budget.add(self._principal, -count)
        self._bytes -= count

    def release(self) -> None:
        """Stop counting all bytes, once the request has ended."""
        self.shrink(self._bytes)


class RequestLimits:
    """The limits of one process, as routes use them."""

    def __init__(self, rates: RateGate, guard: CredentialGuard, bodies: BodyBudget) -> None:
        self.rates = rates
        self.guard = guard
        self.bodies = bodies

    @contextmanager
    def authenticating(self, connection: HTTPConnection) -> Generator[None]:
        """Wrap the check of the connection's bearer credential. Raises a 429 problem."""
        with self.guard.watching(load_address(connection), connection.headers.get("authorization", "")):
            yield

    async def admit(self, connection: HTTPConnection, principal: Principal, *, write: bool) -> Drawn | None:
        """Draw a token for this call and store it in the scope; None without a limit. Raises a 429 problem."""
        connection.scope.pop(DRAWN_KEY, None)

        def keep(drawn: Drawn) -> None:
            connection.scope[DRAWN_KEY] = drawn

        await self.rates.admit(principal, write=write, address=load_address(connection), keep=keep)
        return load_drawn(connection.scope)


def build_request_limits(
    settings: IngressSettings,
    buckets: TokenBuckets,
    *,
    bad_credentials: Limit | None,
    metrics: IngressMetrics,
    monotonic: Callable[[], float],
) -> RequestLimits:
    """Build the limits from the settings. Development mode has one user, who is limited only if the settings say so."""
    rates = RateGate(
        buckets,
        writes=parse_limits(settings.rate_limits_writes, {} if settings.development else WRITES),
        reads=parse_limits(settings.rate_limits_reads, {} if settings.development else READS),
        metrics=metrics,
        monotonic=monotonic,
    )
    bodies = BodyBudget(
        max_bytes=settings.bodies_max_bytes,
        max_bytes_per_user=settings.bodies_max_bytes // USER_BODIES_PART,
        metrics=metrics,
    )
    guard = CredentialGuard(bad_credentials, metrics=metrics, monotonic=monotonic)
    return RequestLimits(rates, guard, bodies)


def load_drawn(scope: Scope) -> Drawn | None:
    """What the call of this scope drew; None before the draw, and without a limit."""
    return cast(Drawn | None, scope.get(DRAWN_KEY))


def load_request_limits(connection: HTTPConnection) -> RequestLimits:
    """The limits of this application."""
    return cast(RequestLimits, connection.app.state.request_limits)
