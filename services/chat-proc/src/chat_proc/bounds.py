"""Bounds of one worker that no operator sets: they follow from the design of leases and uploads, or from its slots."""

from dataclasses import dataclass

from everturn.core.lease_timing import DEFAULT_LEASE_S
from everturn.turns.detached import HOLD_S
from everturn.turns.inbox import UPLOAD_LIMIT

COMMIT_LIMIT_S = 180.0
"""For the transaction of a message after its files have been stored."""
ORPHANS_AFTER_S = UPLOAD_LIMIT.total_seconds() + COMMIT_LIMIT_S
CONNECTIONS_PER_SLOT = 2
"""Database connections: the turn's own, and one for the tasks around it. Ordinary slots are counted: turns in extra
ones wait for programs or models."""
MIN_CONNECTIONS = 8
"""Also with one slot: leases are renewed while turns write, and lost if that waits for a connection."""
MAX_CONNECTIONS = 100
"""Postgres's default `max_connections`."""
TENANT_PART = 2
"""One tenant can hold half of all workers' slots while turns of other tenants wait."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """Bounds that tests make smaller."""

    lease_s: float = DEFAULT_LEASE_S
    """How long a lease lasts unless it is renewed; `LeaseTiming` derives the other times from it."""
    orphans_after_s: float = ORPHANS_AFTER_S
    """Between the two passes over the store that must both find an object without a row before it is deleted."""
    detached_hold_s: float = HOLD_S
    """How long a worker that is away keeps the detached runs that it monitors, at most; at least half of it."""


BOUNDS = Bounds()


def count_connections(slots: int) -> int:
    """The database connections of a worker with so many ordinary slots."""
    return min(MAX_CONNECTIONS, max(MIN_CONNECTIONS, CONNECTIONS_PER_SLOT * slots))
