"""Timelines in memory: a commit is checked as a whole before anything of it is written."""

from dataclasses import replace

from everturn.conversations.model import ConversationState
from everturn.core.errors import Conflict, NotFound, OutOfOrder, StaleFence
from everturn.core.identity import Principal
from everturn.core.ids import ConversationId, TurnId
from everturn.feedback.model import Feedback
from everturn.files.model import ArtifactKind
from everturn.timeline.blocks import Block, EventBody, FeedbackBody, RangeSummaryBody, SignalBody, parse_body
from everturn.timeline.sources import Source
from everturn.timeline.turns import Signal, SignalState, Turn, TurnRequest, TurnStatus, TurnUsage
from everturn.turns.model import (
    Approval,
    ApprovalState,
    Commit,
    Effect,
    EffectState,
    Lease,
    Promotion,
    TurnClose,
    TurnStart,
)
from everturn.turns.ports import InboxMoved
from everturn_testing.in_memory_platform import (
    ApprovalRow,
    ConversationRow,
    MemoryPlatform,
    TurnRow,
    build_request_events,
    same_owner,
)
from everturn_testing.timeline import first_broken_link


class MemoryTimelines:
    """Implements Timelines."""

    def __init__(self, platform: MemoryPlatform) -> None:
        self._platform = platform

    async def load_start(
        self, principal: Principal, conversation_id: ConversationId, turn_id: TurnId, *, with_blocks: bool = True
    ) -> TurnStart:
        return TurnStart(
            await self.load_turn(principal, turn_id),
            await self.load_recent_blocks(principal, conversation_id) if with_blocks else (),
            self._sum_usage(principal, turn_id),
            await self.load_sources(principal, conversation_id),
            self._find_fresh_feedback(principal, conversation_id),
            has_signals=any(row.signal.turn_id == turn_id for row in self._platform.signals.values()),
            has_files=any(
                artifact.kind is ArtifactKind.FILE
                for artifact in self._platform.conversation(principal, conversation_id).artifacts
            ),
            may_have_next=True,
            skills_revision=self._platform.skills_revision,
        )

    async def load_recent_blocks(self, principal: Principal, conversation_id: ConversationId) -> tuple[Block, ...]:
        row = self._find(principal, conversation_id)
        covered = [body.last_seq for body in _summary_bodies(row) if body.scope == "history"] if row else []
        stored = row.blocks[covered[-1] if covered else 0 :] if row else ()
        return tuple(replace(block, body=parse_body(block.type, block.body_json)) for block in stored)

    async def load_turn(self, principal: Principal, turn_id: TurnId) -> Turn:
        return replace(self._platform.turn(principal, turn_id).turn, read_at=self._platform.clock.now())

    async def load_signals(self, principal: Principal, turn_id: TurnId) -> tuple[Signal, ...]:
        rows = [row for row in self._platform.signals.values() if row.signal.turn_id == turn_id]
        return tuple(
            row.signal
            for row in sorted(rows, key=lambda row: row.inbox_seq)
            if self._find(principal, row.conversation_id)
        )

    async def load_title(self, principal: Principal, conversation_id: ConversationId) -> str:
        return self._platform.conversation(principal, conversation_id).title

    async def save_title(self, lease: Lease, title: str) -> bool:
        row = self._platform.conversations.get(lease.conversation_id)
        if row is None or row.fence != lease.fence:
            raise StaleFence(lease.conversation_id)
        row.title = row.title or title
        return row.title == title

    def _sum_usage(self, principal: Principal, turn_id: TurnId) -> TurnUsage:
        turn = self._platform.turns.get(turn_id)
        visible = turn is not None and same_owner(turn.principal, principal)
        events = [event for owner, event in self._platform.usage if visible and owner == turn_id]
        return TurnUsage(
            input_tokens=sum(event.input_tokens for event in events),
            output_tokens=sum(event.output_tokens for event in events),
            cache_read_tokens=sum(event.cache_read_tokens for event in events),
            cost_usd=sum(event.cost_usd for event in events),
            cost_known=all(event.cost_known for event in events),
        )

    def _find_fresh_feedback(self, principal: Principal, conversation_id: ConversationId) -> tuple[Feedback, ...]:
        row = self._find(principal, conversation_id)
        fresh = [given for given in row.feedback if given not in row.shown_feedback] if row else []
        return tuple(sorted(fresh, key=lambda given: given.ts))

    async def load_sources(self, principal: Principal, conversation_id: ConversationId) -> tuple[Source, ...]:
        row = self._find(principal, conversation_id)
        return tuple(row.sources[sid] for sid in sorted(row.sources)) if row else ()

    async def load_source_text(self, principal: Principal, conversation_id: ConversationId, sid: int) -> str:
        row = self._find(principal, conversation_id)
        if row is None or sid not in row.sources:
            raise NotFound(f"source {sid}")
        return row.source_texts.get(sid, "")

    async def commit(self, lease: Lease, commit: Commit) -> int:
        row = self._platform.conversations.get(lease.conversation_id)
        if row is None or row.fence != lease.fence:
            raise StaleFence(lease.conversation_id)
        if commit.blocks and row.blocks and row.blocks[-1].hash == commit.blocks[-1].hash:
            return row.inbox_seq
        self._check(row, commit)
        self._write(row, commit)
        return row.inbox_seq

    def _find(self, principal: Principal, conversation_id: ConversationId) -> ConversationRow | None:
        try:
            return self._platform.conversation(principal, conversation_id)
        except NotFound:
            return None

    def _check(self, row: ConversationRow, commit: Commit) -> None:
        if commit.blocks and (
            commit.blocks[0].seq != row.next_seq or first_broken_link(commit.blocks, last_hash=row.last_hash)
        ):
            raise OutOfOrder(f"{commit.blocks[0].seq} of {row.id}")
        bodies = [block.body for block in commit.blocks]
        folded = {body.signal_id: body.text for body in bodies if isinstance(body, SignalBody | EventBody)}
        for change in commit.signals:
            signal = self._platform.signals[change.signal_id].signal
            if signal.state is not SignalState.ACCEPTED or folded.get(signal.id, signal.text) != signal.text:
                raise InboxMoved(row.inbox_seq)
        withdrawn = [self._platform.approvals[approval_id] for approval_id in commit.withdrawn]
        if any(asked.approval.state is not ApprovalState.PENDING for asked in withdrawn):
            raise InboxMoved(row.inbox_seq)
        if commit.close is not None:
            self._check_close(row, commit.turn_id, commit.close)

    def _check_close(self, row: ConversationRow, turn_id: TurnId, close: TurnClose) -> None:
        if close.seen_inbox != row.inbox_seq:
            raise InboxMoved(row.inbox_seq)
        if self._platform.turns[turn_id].turn.status is not TurnStatus.RUNNING:
            raise Conflict(f"{turn_id} is not running.")
        promoted = [
            self._platform.signals[signal_id] for signal_id in (close.promote.signal_ids if close.promote else ())
        ]
        if any(signal.signal.state is not SignalState.ACCEPTED for signal in promoted):
            raise InboxMoved(row.inbox_seq)

    def _write(self, row: ConversationRow, commit: Commit) -> None:
        row.blocks.extend(commit.blocks)
        row.cursor = commit.cursor
        row.artifacts.extend(commit.artifacts)
        row.feedback.extend(commit.feedback)
        row.sources |= {change.row.sid: change.row for change in commit.sources}
        row.source_texts |= {change.row.sid: change.text for change in commit.sources if change.text is not None}
        shown = [(body.turn_id, body.origin, body.reaction, body.text) for body in _feedback_bodies(commit)]
        row.shown_feedback += [
            given for given in row.feedback if (given.turn_id, given.origin, given.reaction, given.text) in shown
        ]
        for effect in commit.effects:
            known = self._platform.effects.get((commit.turn_id, effect.call_id), effect)
            self._platform.effects[commit.turn_id, effect.call_id] = replace(known, state=effect.state)
        self._platform.usage += [(commit.turn_id, event) for event in commit.usage]
        for change in commit.signals:
            signal = self._platform.signals[change.signal_id]
            signal.signal = replace(signal.signal, state=change.state, round=change.round)
        self._save_approvals(commit)
        turn = self._platform.turns[commit.turn_id]
        turn.turn = replace(turn.turn, attempt=0)
        if commit.close is not None:
            self._close(row, turn, commit.close)

    def _save_approvals(self, commit: Commit) -> None:
        for asked in commit.requests:
            approval = Approval(asked.id, asked.call_id, asked.args_hash, ApprovalState.PENDING)
            self._platform.approvals[asked.id] = ApprovalRow(approval, commit.turn_id, asked.expires_at)
        for row in self._platform.approvals.values():
            ends = commit.close is not None and row.turn_id == commit.turn_id
            if row.approval.state is ApprovalState.PENDING and (ends or row.approval.id in commit.withdrawn):
                row.approval = replace(row.approval, state=ApprovalState.WITHDRAWN)

    def _close(self, row: ConversationRow, turn: TurnRow, close: TurnClose) -> None:
        turn.turn = replace(
            turn.turn,
            status=close.status,
            outcome=close.outcome,
            error=close.error,
            usage=close.usage,
            ended_at=self._platform.clock.now(),
        )
        for (turn_id, call_id), effect in self._platform.effects.items():
            if turn_id == turn.turn.id and effect.state is EffectState.INTENDED:
                unknown = effect.effect is Effect.IRREVERSIBLE
                settled = EffectState.AMBIGUOUS if unknown else EffectState.FAILED
                self._platform.effects[turn_id, call_id] = replace(effect, state=settled)
        row.title = row.title or close.title or ""
        row.state = ConversationState.ERROR if close.status is TurnStatus.FAILED else ConversationState.IDLE
        if close.promote is not None:
            row.state = ConversationState.QUEUED
            self._promote(turn, close.promote)

    def _promote(self, ended: TurnRow, promotion: Promotion) -> None:
        rows = sorted(
            (self._platform.signals[signal_id] for signal_id in promotion.signal_ids), key=lambda r: r.inbox_seq
        )
        for signal in rows:
            signal.signal = replace(signal.signal, state=SignalState.PROMOTED, promoted_to=promotion.turn_id)
        said = [row.signal for row in rows]
        attachments = tuple(artifact for signal in said if signal.event is None for artifact in signal.attachments)
        turn = Turn(
            id=promotion.turn_id,
            conversation_id=ended.turn.conversation_id,
            ordinal=ended.turn.ordinal + 1,
            status=TurnStatus.QUEUED,
            attempt=0,
            request=TurnRequest(
                promotion.text,
                attachments,
                ended.turn.request.bundle_id,
                build_request_events(said),
                ended.turn.request.trace,
                ended.turn.request.time_zone,
            ),
            created_at=self._platform.clock.now(),
        )
        promoted = self._platform.turns[turn.id] = TurnRow(turn, ended.principal, ended.lane, ended.roles)
        self._platform.ring(promoted)


def _summary_bodies(row: ConversationRow) -> list[RangeSummaryBody]:
    return [block.body for block in row.blocks if isinstance(block.body, RangeSummaryBody)]


def _feedback_bodies(commit: Commit) -> list[FeedbackBody]:
    return [block.body for block in commit.blocks if isinstance(block.body, FeedbackBody)]
