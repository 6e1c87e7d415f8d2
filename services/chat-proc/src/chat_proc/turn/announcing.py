"""What follows the end of a turn: telling clients of ends nobody published, and handing the lease back."""

import asyncio

import structlog

from chat_proc.stream.emitter import Emitter
from chat_proc.turn.finish import build_terminal_event
from everturn.errors import Unavailable
from everturn.model.ids import TurnId
from everturn.model.leases import Claim, Lease
from everturn.ports.clock import Clock
from everturn.ports.doorbells import Doorbells
from everturn.ports.event_stream import EventWriter
from everturn.ports.leases import Leases
from everturn.ports.sweeps import Sweeps
from everturn.ports.timelines import Timelines
from everturn.timeline.turn_view import TurnRecord, build_turn_view
from everturn.wire.events import ChatRewind, ConvStatus

_log = structlog.get_logger(__name__)

PUBLISH_S = 5.0


class Announcer:
    """Works under a lease that the caller holds."""

    def __init__(
        self,
        *,
        leases: Leases,
        timelines: Timelines,
        writer: EventWriter,
        sweeps: Sweeps,
        doorbells: Doorbells,
        clock: Clock,
    ) -> None:
        self._leases = leases
        self._timelines = timelines
        self._writer = writer
        self._sweeps = sweeps
        self._doorbells = doorbells
        self._clock = clock

    async def announce_ended(self, claim: Claim, turn_id: TurnId) -> None:
        """Publish the state and the terminal event of a turn from its rows; the sweeper comes again when that fails."""
        lease = claim.lease
        turn = await self._timelines.load_turn(lease.principal, turn_id)
        blocks = await self._timelines.load_blocks(lease.principal, lease.conversation_id)
        record = TurnRecord(turn, tuple(block for block in blocks if block.turn_id == turn_id))
        who = lease.principal
        cursor = claim.cursor
        try:
            cursor = max(cursor, await self._writer.load_last(lease.conversation_id) or cursor)
        except Unavailable as error:
            _log.warning("announcement_postponed", turn_id=turn_id, error=str(error))
            return
        emitter = Emitter(
            self._writer,
            self._clock,
            conversation_id=lease.conversation_id,
            turn_id=turn_id,
            fence=lease.fence,
            cursor=cursor,
        )
        emitter.emit(ChatRewind(turn=build_turn_view(record, tenant=who.tenant, project=who.project)))
        emitter.emit(build_terminal_event(record.blocks))
        if claim.turn_id is None:
            emitter.emit(ConvStatus(state="idle"))
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(emitter.run())
            sent = await emitter.flush(PUBLISH_S)
            emitter.close()
        if sent:
            await self._timelines.save_announced(lease, turn_id)

    async def hand_back(self, lease: Lease, *, requeue: bool) -> None:
        """Release the lease, and ring for what waits next: this turn's next holder, or the tenant's next turn."""
        await self._leases.release(lease, requeue=requeue)
        try:
            for ring in await self._sweeps.next_of_tenant(lease.conversation_id):
                await self._doorbells.ring(ring.lane, ring.conversation_id)
        except Unavailable as error:
            # The row stays; the sweeper rings for it.
            _log.warning("next_turn_not_rung", error=str(error))
