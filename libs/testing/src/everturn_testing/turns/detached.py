"""Detached runs in memory; the platform's clock decides who holds them and when they are overdue."""

from collections.abc import Collection, Sequence
from dataclasses import replace

from everturn.core.errors import StaleFence
from everturn.core.identity import Principal
from everturn.core.ids import CallId, TurnId
from everturn.turns.detached import HOLD_S, MAX_DETAIL_CHARS, MAX_OF_PERSON, DetachedRun, EndedAs, RunStart, WatchedRun
from everturn.turns.model import EffectState, Lease
from everturn.turns.ports import Ring
from everturn_testing.in_memory_platform import DetachedRow, MemoryPlatform, same_owner
from everturn_testing.turns.approvals import wake_turn


class MemoryDetachedRuns:
    """Implements DetachedRuns for the worker `owner`."""

    def __init__(self, platform: MemoryPlatform, *, owner: str = "worker-1") -> None:
        self._platform = platform
        self._owner = owner

    async def load(self, principal: Principal, turn_id: TurnId, call_id: CallId) -> DetachedRun | None:
        turn, row = self._platform.turns.get(turn_id), self._platform.detached.get((turn_id, call_id))
        if turn is None or row is None or not same_owner(turn.principal, principal):
            return None
        return replace(row.run, age_s=self._now() - row.began_s)

    async def save_start(self, lease: Lease, start: RunStart) -> bool:
        self._check(lease)
        key, now = (start.turn_id, start.call_id), self._now()
        rows = [row for other, row in self._platform.detached.items() if other != key and row.run.ended_as is None]
        owners = [self._platform.conversations[row.conversation_id].principal for row in rows]
        if sum(same_owner(owner, lease.principal) for owner in owners) >= MAX_OF_PERSON:
            return False
        began_s = self._platform.detached[key].began_s if key in self._platform.detached else now
        run = DetachedRun(start.run_id, start.engine, start.task, start.starts, None, "", 0.0)
        self._platform.detached[key] = DetachedRow(
            run, lease.conversation_id, self._owner, now + HOLD_S, began_s, now + start.time_limit_s
        )
        return True

    async def save_task(self, lease: Lease, run_id: str, task: str) -> None:
        self._check(lease)
        for _, row in self._find(run_id):
            row.run = replace(row.run, task=task)

    async def hold(self, engines: Collection[str], *, takes_over: bool = True) -> Sequence[WatchedRun]:
        now, held = self._now(), list[WatchedRun]()
        for (turn_id, call_id), row in self._platform.detached.items():
            is_due = row.holder == self._owner or (takes_over and row.held_until_s <= now)
            if not is_due or (row.run.engine not in engines and row.ends_by_s > now):
                continue
            row.holder, row.held_until_s = self._owner, now + HOLD_S
            effect = self._platform.effects.get((turn_id, call_id))
            settled = effect is not None and effect.state is not EffectState.INTENDED
            settled = settled or not self._platform.turns[turn_id].turn.status.is_open
            run, overdue = row.run, row.ends_by_s <= now
            about = run.run_id, run.engine, run.task, run.ended_as, run.detail
            held.append(WatchedRun(*about, now - row.began_s, settled, overdue))
        return tuple(held)

    async def end(self, run_id: str, ended_as: EndedAs, detail: str = "") -> Ring | None:
        for (turn_id, _), row in self._find(run_id):
            if row.run.ended_as is None:
                row.run = replace(row.run, ended_as=ended_as, detail=detail[:MAX_DETAIL_CHARS])
                if wake_turn(self._platform, row.conversation_id):
                    return Ring(row.conversation_id, self._platform.turns[turn_id].lane)
        return None

    async def load_known(self, run_ids: Sequence[str]) -> Collection[str]:
        return {run_id for run_id in run_ids if self._find(run_id)}

    async def remove(self, run_id: str) -> None:
        for key, _ in self._find(run_id):
            del self._platform.detached[key]

    def _find(self, run_id: str) -> list[tuple[tuple[TurnId, CallId], DetachedRow]]:
        return [(key, row) for key, row in self._platform.detached.items() if row.run.run_id == run_id]

    def _now(self) -> float:
        return self._platform.clock.monotonic()

    def _check(self, lease: Lease) -> None:
        row = self._platform.conversations.get(lease.conversation_id)
        if row is None or row.fence != lease.fence:
            raise StaleFence(lease.conversation_id)
