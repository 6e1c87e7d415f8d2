"""Which sockets must go because of their credential: one that has ended, or whose caller would be refused now."""

from collections.abc import Coroutine
from typing import Any, Protocol

from ingress.errors import ProblemError, unauthorized
from ingress.sockets.connection import Admitted


class Joined(Protocol):
    """A socket whose client has said who it is."""

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Run something that ends with the socket."""
        ...

    def dismiss(self, refusal: ProblemError) -> None:
        """End the session; the client is told why."""
        ...


def check_credential(socket: Joined, admitted: Admitted, now: float) -> None:
    """Dismiss it where its credential has ended by `now` (Unix time). Where it is time to ask whether the caller would
    still be let in, that is asked beside all other sockets: a database that does not answer holds up none of them."""
    expires_at = admitted.caller.expires_at
    if expires_at is not None and expires_at <= now:
        socket.dismiss(unauthorized("The credential has expired."))
    elif admitted.standing.is_due:
        socket.start(_recheck(socket, admitted))


async def _recheck(socket: Joined, admitted: Admitted) -> None:
    refusal = await admitted.standing.try_refusal()
    if refusal is not None:
        socket.dismiss(refusal)
