"""Slots limit how many long responses, such as event streams and downloads, are open at once: per process, per user,
and for all guests."""

from collections import Counter
from collections.abc import AsyncIterable, Generator, Mapping
from contextlib import contextmanager
from typing import cast

from fastapi import Request
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from everturn.core.identity import Principal
from ingress.admission.limits import GUEST_PART, is_guest
from ingress.errors import too_many, unavailable

RETRY_AFTER_S = 5


class OpenSlots:
    """Counts open responses; only this object changes the counts. `singular` and `plural` name them in errors."""

    def __init__(
        self, *, max_total: int, max_per_user: int, singular: str = "stream", plural: str = "event streams"
    ) -> None:
        self._singular = singular
        self._plural = plural
        self._max_total = max_total
        self._max_per_user = max_per_user
        self._max_guests = max(1, max_total // GUEST_PART)
        self._open: Counter[str] = Counter()
        self._guests = 0

    @property
    def total(self) -> int:
        return self._open.total()

    def acquire(self, principal: Principal) -> None:
        """Acquire a slot, which `release` returns. Raises a 429 problem for the user's cap, 503 for the process's."""
        person = principal.limited_as
        if self._open[person] >= self._max_per_user:
            raise too_many(f"You already have {self._max_per_user} open {self._plural}.", retry_after_s=RETRY_AFTER_S)
        if self.total >= self._max_total or (is_guest(principal) and self._guests >= self._max_guests):
            raise unavailable(
                f"This server can't accept another {self._singular} right now.", retry_after_s=RETRY_AFTER_S
            )
        self._open[person] += 1
        self._guests += is_guest(principal)

    def release(self, principal: Principal) -> None:
        """Return a slot."""
        person = principal.limited_as
        self._open[person] -= 1
        self._guests -= is_guest(principal)
        if self._open[person] <= 0:
            del self._open[person]

    @contextmanager
    def holding(self, principal: Principal) -> Generator[None]:
        """Hold a slot for as long as the block runs."""
        with self.until_handed_over(principal):
            yield
        self.release(principal)

    @contextmanager
    def until_handed_over(self, principal: Principal) -> Generator[None]:
        """Acquire a slot. It is returned here only if the block fails; otherwise its new owner returns it."""
        self.acquire(principal)
        try:
            yield
        except BaseException:
            self.release(principal)
            raise


class HeldResponse(StreamingResponse):
    """A streamed response of any duration that releases its slot however it ends."""

    def __init__(
        self,
        content: AsyncIterable[bytes],
        *,
        slots: OpenSlots,
        principal: Principal,
        status_code: int = 200,
        headers: Mapping[str, str] | None = None,
        media_type: str | None = None,
    ) -> None:
        super().__init__(content, status_code=status_code, headers=headers, media_type=media_type)
        self._slots = slots
        self._principal = principal

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._slots.release(self._principal)


async def download_slots(request: Request) -> OpenSlots:
    """The application's slots for downloads of files and exports."""
    return cast(OpenSlots, request.app.state.downloads)
