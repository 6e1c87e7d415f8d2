"""Which stored objects rows name, across tenants: what the orphan sweeper may ask, keys only."""

from collections.abc import Sequence
from typing import Protocol

MAX_KEYS = 1_000
"""Keys that one call takes at most."""


class ObjectRows(Protocol):
    """Asked with keys that the object store has."""

    async def load_orphans(self, keys: Sequence[str]) -> tuple[str, ...]:
        """Those that no row names: no artifact has the file, no turn the manifest. Raises Invalid above MAX_KEYS."""
        ...
