"""Stream tickets: what a plain EventSource carries in its address, where it can send no header."""

from dataclasses import dataclass

from everturn.model.ids import ConversationId
from everturn.ports.clock import Clock
from ingress.auth.callers import Caller, build_record, read_record
from ingress.auth.seals import Seals
from ingress.errors import unauthorized

TICKET_S = 300
"""How long a ticket opens a stream (api.md), counted by this server's clock."""


@dataclass(frozen=True, slots=True)
class Ticket:
    """A sealed text, and until when (Unix time) it opens its conversation's stream."""

    text: str
    expires_at: float


class Tickets:
    """Gives out tickets and reads them. A ticket speaks for the caller that asked for it, and no longer than that."""

    def __init__(self, seals: Seals, clock: Clock) -> None:
        self._seals = seals
        self._clock = clock

    def build(self, caller: Caller, conversation_id: ConversationId) -> Ticket:
        """A ticket for one conversation, good for opening and reopening its stream until it expires."""
        expires_at = self._clock.now().timestamp() + TICKET_S
        if caller.expires_at is not None:
            expires_at = min(expires_at, caller.expires_at)
        sealed = self._seals.build(
            "evt_", {**build_record(caller), "conversation": conversation_id, "expires": expires_at}
        )
        return Ticket(sealed, expires_at)

    def check(self, text: str, *, tenant: str, project: str, conversation_id: str) -> Caller:
        """The caller a ticket speaks for. Raises 401 for one that is forged, changed, old, or for another stream."""
        value = self._seals.try_read("evt_", text)
        if value is None:
            raise unauthorized("The ticket is invalid.")
        if value["expires"] <= self._clock.now().timestamp():
            raise unauthorized("The ticket has expired.")
        if (value["tenant"], value["project"], value["conversation"]) != (tenant, project, conversation_id):
            raise unauthorized("The ticket is not for this stream.")
        return read_record(value)
