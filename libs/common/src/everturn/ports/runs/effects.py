"""The ledger of effects that programs cause: a call that is not pure has its row before it begins, and happens once."""

import hashlib
from dataclasses import dataclass
from typing import Protocol

from everturn.model.commits import Effect, EffectState
from everturn.model.ids import CallId, TurnId
from everturn.model.leases import Lease

MAX_RESULT_CHARS = 64 * 1024
"""Of a reply that is kept for a repetition."""


@dataclass(frozen=True, slots=True)
class EffectKey:
    """One call of a run, the same when the run is repeated.

    `occurrence` counts from 1 the calls of the run with this tool and these arguments; tries that were not
    begun because the lease was unsure don't count.
    """

    turn_id: TurnId
    run_call_id: CallId
    tool_id: str
    args_hash: str
    occurrence: int

    @property
    def row_id(self) -> str:
        """Stands where a call of the loop has its own id."""
        told = f"{self.tool_id}\n{self.args_hash}\n{self.occurrence}"
        return f"{self.run_call_id}/{hashlib.sha256(told.encode()).hexdigest()[:32]}"


@dataclass(frozen=True, slots=True)
class EffectRecord:
    """What is known of a call that was begun before. `reply` is empty where none was kept."""

    state: EffectState
    reply: str


class EffectLedger(Protocol):
    """Every write names the lease's fence and raises StaleFence when it is no longer the latest; Unavailable."""

    async def begin(self, lease: Lease, key: EffectKey, effect: Effect) -> EffectRecord | None:
        """Write the intent, once. None: it is written, nobody began this call before. Else what is known of it."""
        ...

    async def settle(self, lease: Lease, key: EffectKey, state: EffectState, reply: str) -> None:
        """Say how a begun call ended; `reply` is ASCII of at most MAX_RESULT_CHARS, or empty."""
        ...
