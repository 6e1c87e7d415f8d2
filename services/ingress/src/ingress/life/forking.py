"""Forking a conversation: a copy up to the end of a turn, which goes its own way."""

import asyncio

from starlette.datastructures import Headers

from everturn.model.identity import Principal
from everturn.model.ids import ConversationId, Ids, TurnId, is_id
from everturn.model.life.forks import Fork
from everturn.ports.clock import Clock
from everturn.ports.inbox import KeyBusy
from everturn.ports.life.forks import Forks, ForkWish
from ingress.admission.idempotency import build_key
from ingress.errors import absent
from ingress.life.schemas import ForkIn

TWIN_WAIT_S = 5.0
"""How long a request waits for another one with its Idempotency-Key (api.md)."""


class ForkService:
    """What the fork endpoint does."""

    def __init__(self, forks: Forks, ids: Ids, clock: Clock) -> None:
        self._forks = forks
        self._ids = ids
        self._clock = clock

    async def fork(self, principal: Principal, source_id: ConversationId, body: ForkIn, headers: Headers) -> Fork:
        """Copy a conversation; the same key and body give the same fork."""
        if body.turn_id is not None and not is_id(body.turn_id, "turn"):
            raise absent()
        route = f"POST /conversations/{principal.tenant}/{principal.project}/{source_id}/fork"
        key = build_key(headers, route=route, content=body.model_dump())
        wish = ForkWish(self._ids.conversation(), TurnId(body.turn_id) if body.turn_id else None, body.title)
        give_up = self._clock.monotonic() + TWIN_WAIT_S
        while True:
            try:
                return await self._forks.fork(principal, source_id, wish, key)
            except KeyBusy:
                if self._clock.monotonic() >= give_up:
                    raise
            await asyncio.sleep(0.05)
