"""Forking a conversation: a copy up to the end of a turn, which goes its own way."""

from functools import partial

from starlette.datastructures import Headers

from everturn.model.identity import Principal
from everturn.model.ids import ConversationId, Ids, TurnId, is_id
from everturn.model.life.forks import Fork
from everturn.ports.clock import Clock
from everturn.ports.life.forks import Forks, ForkWish
from ingress.admission.idempotency import build_key
from ingress.admission.twins import wait_for_twin
from ingress.errors import absent
from ingress.life.schemas import ForkIn


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
        return await wait_for_twin(partial(self._forks.fork, principal, source_id, wish, key), self._clock)
