"""How long a lease lasts, and every time that follows from it."""

from dataclasses import dataclass
from typing import Final

DEFAULT_LEASE_S: Final = 15.0


@dataclass(frozen=True, slots=True)
class LeaseTiming:
    """All times derived from the duration of a lease, in seconds.

    Two workers never act on one turn while `renew_every_s` < `sure_s` < `give_up_s` < `ttl_s`.
    """

    ttl_s: float = DEFAULT_LEASE_S

    @property
    def renew_every_s(self) -> float:
        """Six renewals per lease duration."""
        return self.ttl_s / 6

    @property
    def sure_s(self) -> float:
        """An effect can begin for this long after the last confirmation: three renewals can fail, and a third of the
        lease is left for the call to reach its target."""
        return self.ttl_s * 2 / 3

    @property
    def give_up_s(self) -> float:
        """A worker stops writing when a lease was not confirmed for this long, before it expires in the database."""
        return self.ttl_s * 0.9

    @property
    def retry_share(self) -> float:
        """The factor for pauses between retries of a call: with the longest jitter, all of them together last less than
        two thirds of a lease."""
        return min(1.0, self.ttl_s / DEFAULT_LEASE_S)

    @property
    def lock_timeout_s(self) -> float:
        """How long a statement waits for a row; longer leases don't make clients wait longer."""
        return min(2.0, self.ttl_s * 2 / 15)

    @property
    def idle_in_transaction_s(self) -> float:
        """A paused process can lock a row for at most a third of a lease."""
        return min(5.0, self.ttl_s / 3)
