"""How many event streams may be open: per process and per user."""

from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager

from everturn.model.identity import Principal
from ingress.errors import too_many, unavailable

RETRY_AFTER_S = 5


class StreamSlots:
    """Counts open streams; only this object changes the counts."""

    def __init__(self, *, max_total: int, max_per_user: int) -> None:
        self._max_total = max_total
        self._max_per_user = max_per_user
        self._open: Counter[tuple[str, str, str]] = Counter()

    @property
    def total(self) -> int:
        return self._open.total()

    def take(self, principal: Principal) -> None:
        """Take a slot, which `give_back` returns. Raises a 429 problem for the user's cap, 503 for the process's."""
        owner = _owner(principal)
        if self._open[owner] >= self._max_per_user:
            raise too_many(f"{self._max_per_user} event streams are open already.", retry_after_s=RETRY_AFTER_S)
        if self.total >= self._max_total:
            raise unavailable("This server has no room for another stream.", retry_after_s=RETRY_AFTER_S)
        self._open[owner] += 1

    def give_back(self, principal: Principal) -> None:
        """Return a slot."""
        owner = _owner(principal)
        self._open[owner] -= 1
        if self._open[owner] <= 0:
            del self._open[owner]

    @contextmanager
    def until_handed_over(self, principal: Principal) -> Generator[None]:
        """Hold a slot; it is returned only when the block fails, else by whoever took the stream over."""
        self.take(principal)
        try:
            yield
        except BaseException:
            self.give_back(principal)
            raise


def _owner(principal: Principal) -> tuple[str, str, str]:
    return principal.tenant, principal.project, principal.user_id
