"""Token buckets of one process: what holds when no server answers, and in tests. Bounded; the idlest goes first."""

from collections import OrderedDict
from collections.abc import Callable

from everturn.model.limits.token_bucket import SECOND_US, BucketState, Draw, Level, Limit, draw_token, return_token

MAX_BUCKETS = 10_000


class BucketTable:
    """Only this object changes its buckets. A bucket that is forgotten counts as full."""

    def __init__(self, *, monotonic: Callable[[], float], max_buckets: int = MAX_BUCKETS) -> None:
        self._monotonic = monotonic
        self._max = max_buckets
        self._states: OrderedDict[str, BucketState] = OrderedDict()

    def draw(self, key: str, limit: Limit) -> Draw:
        """Take a token from the bucket of this key."""
        state, draw = draw_token(self._states.pop(key, BucketState()), limit, self._now_us())
        self._keep(key, state)
        return draw

    def give_back(self, key: str, limit: Limit) -> Level:
        """Put a token back that was drawn with this limit, as far as the bucket takes it."""
        state, level = return_token(self._states.pop(key, BucketState()), limit, self._now_us())
        self._keep(key, state)
        return level

    def look(self, key: str, limit: Limit) -> Draw:
        """What a draw would give, without taking anything."""
        return draw_token(self._states.get(key, BucketState()), limit, self._now_us())[1]

    def _keep(self, key: str, state: BucketState) -> None:
        self._states[key] = state
        if len(self._states) > self._max:
            self._states.popitem(last=False)

    def _now_us(self) -> int:
        return int(self._monotonic() * SECOND_US)
