"""Token buckets as arithmetic: a bucket is three times in microseconds, and a draw returns the next ones and the
result.

Each rejected caller gets its own retry time: callers rejected together return one after another as tokens are refilled,
and each finds one. A retry time is at most one window ahead; by then the bucket is full again.

A call that could not be served returns its token. Within a window at most as many tokens are returned as the bucket
holds: a caller that keeps calling while nothing can be served is still limited.
"""

import re
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final, Protocol

from everturn.core.errors import Invalid
from everturn.core.identity import Role

SECOND_US: Final = 1_000_000
UNITS: Final = {"s": 1, "min": 60, "h": 3600}
MAX_TOKENS: Final = 1_000_000
_LIMIT: Final = re.compile(r"(\d{1,7})/(s|min|h)", re.ASCII)

MAX_BUCKETS = 10_000


class BadLimits(Invalid):
    """Limits are written as `registered=60/min,paid=off`, with the units s, min and h."""


@dataclass(frozen=True, slots=True)
class Limit:
    """The number of tokens, which are refilled evenly over the window; a full bucket can be emptied at once."""

    tokens: int
    window_s: int

    @property
    def interval_us(self) -> int:
        """Time from one token to the next."""
        return max(1, self.window_s * SECOND_US // self.tokens)

    @property
    def window_us(self) -> int:
        return self.interval_us * self.tokens


@dataclass(frozen=True, slots=True)
class BucketState:
    """When the bucket is full again, the last retry time issued, and when as many tokens as it holds can be returned
    again; all can be in the past."""

    full_at_us: int = 0
    last_retry_us: int = 0
    returns_us: int = 0


@dataclass(frozen=True, slots=True)
class Level:
    """How many tokens are in the bucket, and in how many seconds it is full."""

    left: int
    full_s: float


@dataclass(frozen=True, slots=True)
class Draw:
    """Whether a token was drawn, how many are left, in how many seconds to retry (0 when it was drawn), and in how many
    the bucket is full."""

    taken: bool
    left: int
    wait_s: float
    full_s: float

    @property
    def level(self) -> Level:
        return Level(self.left, self.full_s)


Limits = Mapping[Role, Limit]
"""By role; a role without one is not limited."""


def draw_token(state: BucketState, limit: Limit, now_us: int) -> tuple[BucketState, Draw]:
    """Draw one token if there is one. Redis does the same in Lua (everturn.limits.redis)."""
    full_at = max(state.full_at_us, now_us)
    after = full_at + limit.interval_us
    if after - now_us <= limit.window_us:
        left = (limit.window_us - (after - now_us)) // limit.interval_us
        return replace(state, full_at_us=after), Draw(True, left, 0.0, (after - now_us) / SECOND_US)
    retry_at = min(max(after - limit.window_us, state.last_retry_us + limit.interval_us), now_us + limit.window_us)
    refused = Draw(False, 0, (retry_at - now_us) / SECOND_US, (full_at - now_us) / SECOND_US)
    return replace(state, full_at_us=full_at, last_retry_us=retry_at), refused


def return_token(state: BucketState, limit: Limit, now_us: int) -> tuple[BucketState, Level]:
    """Return a drawn token, unless the bucket is full or as many as it holds were returned within the window."""
    full_at, returns = max(state.full_at_us, now_us), max(state.returns_us, now_us) + limit.interval_us
    if returns - now_us <= limit.window_us:
        full_at = max(full_at - limit.interval_us, now_us)
        state = replace(state, full_at_us=full_at, returns_us=returns)
    left = max(0, (limit.window_us - (full_at - now_us)) // limit.interval_us)
    return state, Level(left, (full_at - now_us) / SECOND_US)


def parse_limits(text: str, defaults: Limits) -> Limits:
    """`defaults` with the overrides in `text`; `off` alone disables all limits. Raises BadLimits."""
    limits = dict(defaults)
    if text == "off":
        return {}
    for rule in filter(None, (part.strip() for part in text.split(","))):
        name, _, amount = rule.partition("=")
        if name not in set(Role):
            raise BadLimits(f"{name!r} is not a role.")
        limits.pop(Role(name), None)
        if amount != "off":
            limits[Role(name)] = parse_limit(amount)
    return limits


def parse_limit(text: str) -> Limit:
    """One limit, such as `60/min`. Raises BadLimits."""
    found = _LIMIT.fullmatch(text)
    if found is None or not 1 <= int(found[1]) <= MAX_TOKENS:
        raise BadLimits(f"{text!r} is not a limit.")
    return Limit(int(found[1]), UNITS[found[2]])


class BucketTable:
    """Token buckets of one process: for when no server answers, and for tests. The longest unused bucket is removed
    first.

    Only this object changes its buckets. A removed bucket counts as full.
    """

    def __init__(self, *, monotonic: Callable[[], float], max_buckets: int = MAX_BUCKETS) -> None:
        self._monotonic = monotonic
        self._max = max_buckets
        self._states: OrderedDict[str, BucketState] = OrderedDict()

    def draw(self, key: str, limit: Limit) -> Draw:
        """Draw a token from the bucket of this key."""
        state, draw = draw_token(self._states.pop(key, BucketState()), limit, self._now_us())
        self._keep(key, state)
        return draw

    def give_back(self, key: str, limit: Limit) -> Level:
        """Return a token drawn with this limit, if the bucket has room for it."""
        state, level = return_token(self._states.pop(key, BucketState()), limit, self._now_us())
        self._keep(key, state)
        return level

    def peek(self, key: str, limit: Limit) -> Draw:
        """The result of a draw, without drawing."""
        return draw_token(self._states.get(key, BucketState()), limit, self._now_us())[1]

    def _keep(self, key: str, state: BucketState) -> None:
        self._states[key] = state
        if len(self._states) > self._max:
            self._states.popitem(last=False)

    def _now_us(self) -> int:
        return int(self._monotonic() * SECOND_US)


class TokenBuckets(Protocol):
    """Token buckets that all processes of a service share.

    An unused bucket expires once it is full.
    """

    async def draw(self, key: str, limit: Limit) -> Draw:
        """Draw a token by the server's time; `key` consists of hashes. Raises Unavailable after at most 250 ms."""
        ...

    async def give_back(self, key: str, limit: Limit) -> Level:
        """Return a token drawn with this limit, if the bucket has room for it. Raises as `draw` does."""
        ...
