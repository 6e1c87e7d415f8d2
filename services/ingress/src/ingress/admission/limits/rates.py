"""How often a principal may call: one token bucket for what it writes and one for what it reads.

Fields and their names are those of draft-ietf-httpapi-ratelimit-headers-10.
"""

import hashlib
import math
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeVar

import structlog

from everturn.errors import Unavailable
from everturn.model.identity import Principal, Role
from everturn.model.limits.bucket_table import BucketTable
from everturn.model.limits.token_bucket import Draw, Level, Limit, Limits
from everturn.ports.limits.token_buckets import TokenBuckets
from ingress.admission.limits.defaults import strongest_role
from ingress.admission.metrics import IngressMetrics
from ingress.errors import too_many

FALLBACK_PART = 4
"""While the shared buckets don't answer, each process gives out one fourth of a limit on its own."""
REST_S = 1.0
"""How long they are not asked again after they did not answer, so that not every request waits for them."""

NOT_NOW = frozenset({429, 503})
"""Whoever is answered so got nothing and comes again: the token is given back."""

READING_POSTS = ("/fetch", "/turns-with-feedbacks", "/search", "/by-rn", "/conversations-in-period")

_log = structlog.get_logger(__name__)
Told = TypeVar("Told", Draw, Level)
Fields = tuple[tuple[bytes, bytes], ...]
GiveBack = Callable[[], Awaitable[Level | None]]


class Drawn:
    """What one call drew, and the RateLimit fields of its answer, which are true at any time."""

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
        """Give the token back, once, if this is the answer to a call that nothing was done for. 250 ms at most."""
        give_back, self._give_back = self._give_back, None
        if give_back is not None and status in NOT_NOW:
            self._level = await give_back() or self._level


class RateGate:
    """Draws a token for each call; every process of the service draws from the same buckets."""

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
        self._rest_until = -math.inf

    async def admit(self, principal: Principal, *, write: bool, address: str, keep: Callable[[Drawn], None]) -> None:
        """Raises a 429 problem with a true Retry-After. `keep` gets what was drawn, also where it was nothing."""
        kind, role = "writes" if write else "reads", strongest_role(principal.roles)
        limit = self._limits[kind].get(role)
        if limit is None:
            return
        # A guest gets a new name whenever it asks for one, so guests are counted by their address.
        key = hash_key(kind, role.value, address if role is Role.ANONYMOUS else principal.limited_as)
        limit, draw, give_back = await self._draw(key, limit)
        keep(Drawn(kind, limit, draw.level, give_back if draw.taken else None))
        if not draw.taken:
            self._metrics.refusals.labels(reason="rate", role=role.value).inc()
            raise too_many(
                f"At most {limit.tokens} {kind} in {limit.window_s} s.", retry_after_s=max(1, math.ceil(draw.wait_s))
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

    async def _try_shared(self, ask: Callable[[], Awaitable[Told]]) -> Told | None:
        """None while the shared buckets do not answer: a token that can't be given back is lost for its time."""
        if self._monotonic() < self._rest_until:
            return None
        try:
            return await ask()
        except Unavailable as error:
            _log.warning("rates are limited by this process alone", error=str(error))
            self._rest_until = self._monotonic() + REST_S
            return None


def hash_key(*names: str) -> str:
    """A bucket's key: no name can reach into another one, or make it long."""
    return hashlib.sha256("\0".join(names).encode()).hexdigest()[:40]


def is_write(method: str, path: str) -> bool:
    """Whether a call on this route counts as a write: everything that is no GET, except the posts that only read."""
    return method not in {"GET", "HEAD", "OPTIONS"} and not path.endswith(READING_POSTS)
