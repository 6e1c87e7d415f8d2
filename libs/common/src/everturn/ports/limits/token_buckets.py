"""Token buckets that all processes of a service share."""

from typing import Protocol

from everturn.model.limits.token_bucket import Draw, Limit


class TokenBuckets(Protocol):
    """A bucket that nobody draws from is forgotten once it is full."""

    async def draw(self, key: str, limit: Limit) -> Draw:
        """Take a token by the server's time; `key` is made of hashes. Raises Unavailable after at most 250 ms."""
        ...
