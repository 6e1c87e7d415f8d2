"""Lets a call of a program happen once: its row is there before it begins, and a repeated run gets what it gave."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Final

import structlog

from everturn.errors import StaleFence, Unavailable
from everturn.model.commits import Effect, EffectState
from everturn.model.leases import LeaseTiming
from everturn.ports.runs.effects import MAX_RESULT_CHARS, EffectKey, EffectLedger, EffectRecord
from everturn.ports.tool import LiveTurn
from everturn.wire.execution import ToolReply
from everturn.wire.framing import FrameError, decode_message, encode_frame
from everturn.wire.records import BadMessage, build_message, parse_message

_log = structlog.get_logger(__name__)

LEASE_UNSURE: Final = "lease_unsure"
"""The code of a call that was not begun because another worker may hold the turn."""
_LENGTH_BYTES: Final = 4


@dataclass(frozen=True, slots=True)
class Answered:
    """A reply, and whether it says what became of the call; a tool that hung or broke says nothing."""

    reply: ToolReply
    told: bool = True


class EffectGuard:
    """Stands before the calls of one turn that are not pure."""

    def __init__(self, ledger: EffectLedger, live: LiveTurn, *, lease: LeaseTiming | None = None) -> None:
        self._ledger = ledger
        self._live = live
        self._max_lease_age_s = (lease or LeaseTiming()).sure_s

    async def run(
        self, key: EffectKey, effect: Effect, call_id: int, work: Callable[[], Awaitable[Answered]]
    ) -> ToolReply:
        """Run `work` unless this call was carried through, or may have been, when the run went on elsewhere."""
        if effect is Effect.PURE:
            return (await work()).reply
        try:
            self._check_lease()
            known = await self._ledger.begin(self._live.lease, key, effect)
            if known is not None and (repeated := _try_repeat(known, effect, call_id)) is not None:
                return repeated
            self._check_lease()
        except _LeaseUnsure as unsure:
            return ToolReply(call_id, False, None, LEASE_UNSURE, str(unsure))
        except (StaleFence, Unavailable) as error:
            return ToolReply(call_id, False, None, LEASE_UNSURE, f"{key.tool_id} was not begun: {error}")
        answered = await work()
        reply = answered.reply
        if effect is Effect.IRREVERSIBLE and not answered.told:
            reply = replace(reply, error_code="ambiguous", error_message=f"{reply.error_message}. {_NOBODY_KNOWS}")
        await self._settle(key, _state_of(effect, answered), reply)
        return reply

    def _check_lease(self) -> None:
        age_s = self._live.lease_age_s()
        if age_s >= self._max_lease_age_s:
            raise _LeaseUnsure(f"not begun: this worker was last sure of its turn {age_s:.0f} s ago; try again")

    async def _settle(self, key: EffectKey, state: EffectState, reply: ToolReply) -> None:
        try:
            await self._ledger.settle(self._live.lease, key, state, encode_reply(reply))
        except (StaleFence, Unavailable) as error:
            # The row says that the call was begun: a repeated run is told that nobody knows.
            _log.warning("effect_not_settled", tool_id=key.tool_id, run_call_id=key.run_call_id, error=str(error))


class _LeaseUnsure(Exception):
    """Another worker may hold the turn already."""


_NOBODY_KNOWS: Final = "It is unknown whether it took effect, and it is not repeated. Find out before you call it again"


def encode_reply(reply: ToolReply) -> str:
    """A reply for the ledger; empty when it is too long to keep."""
    try:
        return encode_frame(build_message(reply), MAX_RESULT_CHARS)[_LENGTH_BYTES:].decode("ascii")
    except FrameError:
        return ""


def try_decode_reply(kept: str, call_id: int) -> ToolReply | None:
    """The kept reply with the number of the call that asks now; None where none can be read."""
    try:
        return replace(parse_message(decode_message(kept.encode()), ToolReply), id=call_id)
    except (FrameError, BadMessage):
        return None


def _try_repeat(known: EffectRecord, effect: Effect, call_id: int) -> ToolReply | None:
    """What a call that was begun before is answered with; None when it may be made again."""
    kept = try_decode_reply(known.reply, call_id) if known.reply else None
    if kept is not None:
        return kept
    if effect is Effect.IDEMPOTENT:
        return None
    done = known.state in (EffectState.COMMITTED, EffectState.FAILED)
    why = "it was made before, and its result was too long to keep" if done else f"it was begun before. {_NOBODY_KNOWS}"
    return ToolReply(call_id, False, None, "ambiguous", f"not repeated: {why}")


def _state_of(effect: Effect, answered: Answered) -> EffectState:
    if answered.reply.ok:
        return EffectState.COMMITTED
    return EffectState.FAILED if answered.told or effect is Effect.IDEMPOTENT else EffectState.AMBIGUOUS
