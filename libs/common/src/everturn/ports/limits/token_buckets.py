"""Token buckets that all processes of a service share."""

from typing import Protocol

from everturn.model.limits.token_bucket import Draw, Level, Limit


class TokenBuckets(Protocol):
    """A bucket that nobody draws from is forgotten once it is full."""

    async def draw(self, key: str, limit: Limit) -> Draw:
        """Take a token by the server's time; `key` is made of hashes. Raises Unavailable after at most 250 ms."""
        ...

    async def give_back(self, key: str, limit: Limit) -> Level:
        """Put a token back that was drawn with this limit, as far as the bucket takes it. Raises as `draw` does."""
        ...
