"""How many bytes of bodies may be in memory: of this process, of one user, and of all guests."""

from collections import Counter
from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager

from everturn.model.identity import Principal
from ingress.admission.limits.defaults import GUEST_PART, is_guest, strongest_role
from ingress.admission.metrics import IngressMetrics
from ingress.errors import ProblemError, too_many, unavailable

RETRY_AFTER_S = 5
BODY_TIMEOUT_S = 300.0
BODY_GRACE_S = 20.0
BODY_BYTES_PER_S = 10_000
"""A body may lag this rate by the grace: 80 kbit/s, less than any network on which chats are usable."""
READING_PER_USER = 64
"""Bodies of one user that are being read at once. A page sends one, and a program a few."""
"""For a whole body: 25 MB in this time is 0.7 Mbit/s, and a byte now and then holds nothing for ever."""


class BodyBudget:
    """Counts bytes that were read and whose requests have not ended; only this object changes the counts."""

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
        """Begin to count one body."""
        return BodyHold(self, principal)

    def check(self, principal: Principal, more: int) -> None:
        """Raises a 429 problem for the user's cap, 503 for the process's."""
        role = strongest_role(principal.roles).value
        if self._held[principal.limited_as] + more > self._max_per_user:
            text = f"Your requests hold more than {self._max_per_user} bytes already."
            raise self._refused("user_bodies", role, too_many(text, retry_after_s=RETRY_AFTER_S))
        if self._total + more > self._max or (is_guest(principal) and self._guests + more > self._max_guests):
            text = "This server has no room for another body."
            raise self._refused("bodies", role, unavailable(text, retry_after_s=RETRY_AFTER_S))

    def add(self, principal: Principal, count: int) -> None:
        """Count bytes in (or, when negative, out)."""
        person = principal.limited_as
        self._held[person] += count
        self._total += count
        self._guests += count if is_guest(principal) else 0
        if self._held[person] <= 0:
            del self._held[person]

    @contextmanager
    def reading(self, principal: Principal) -> Generator[None]:
        """While a body is read. Raises a 429 problem for too many of one user."""
        person = principal.limited_as
        if self._reading[person] >= READING_PER_USER:
            role, text = strongest_role(principal.roles).value, f"You are sending {READING_PER_USER} requests already."
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
        """While the body is read. Raises the problem of `BodyBudget.reading`."""
        return self._budget.reading(self._principal)

    def check_announced(self, count: int) -> None:
        """Raises the problems of `BodyBudget.check` when so many bytes have no room already now."""
        self._budget.check(self._principal, count)

    def grow(self, count: int) -> None:
        """So many bytes came. Raises the problems of `BodyBudget.check`."""
        self._budget.check(self._principal, count)
        self._budget.add(self._principal, count)
        self._bytes += count

    def shrink(self, count: int) -> None:
        """So many of the bytes are not held any more. After `release` none are."""
        count = min(count, self._bytes)
        self._budget.add(self._principal, -count)
        self._bytes -= count

    def release(self) -> None:
        """The request has ended."""
        self.shrink(self._bytes)
