"""The setting for the contracts of inbox, leases and timelines: the three ports over one set of rows, and actions."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Literal

from everturn.core.errors import problem
from everturn.core.identity import Principal, Role
from everturn.core.ids import ArtifactId, ConversationId, Ids, TurnId
from everturn.events.cursor import EventCursor
from everturn.feedback.model import Feedback
from everturn.files.model import Upload
from everturn.timeline.blocks import (
    ApprovalRequestBody,
    Block,
    BlockDraft,
    BlockType,
    Body,
    EventBody,
    ExitBody,
    FeedbackBody,
    RangeSummaryBody,
    SignalBody,
    ThinkingBody,
    chain_blocks,
)
from everturn.timeline.turns import ExternalEvent, Outcome, SignalKind, TurnStatus, TurnUsage
from everturn.turns.inbox import IdempotencyKey, Inbox, IncomingMessage, IncomingSignal, Receipt
from everturn.turns.model import Claim, Commit, Promotion, SignalChange, TurnClose
from everturn.turns.ports import Leases, Timelines

TS = "2026-03-01T12:00:00.000Z"
ANN = Principal("acme", "support", "ann", frozenset({Role.PAID}))
STRANGERS = (
    Principal("acme", "support", "bob"),
    Principal("acme", "sales", "ann"),
    Principal("rival", "support", "ann"),
)
"""Another user, another project, another tenant."""

_TYPES: dict[type[Body], BlockType] = {
    ThinkingBody: BlockType.THINKING,
    SignalBody: BlockType.USER_FOLLOWUP,
    EventBody: BlockType.EXTERNAL_EVENT,
    FeedbackBody: BlockType.FEEDBACK,
    RangeSummaryBody: BlockType.RANGE_SUMMARY,
    ApprovalRequestBody: BlockType.APPROVAL_REQUEST,
    ExitBody: BlockType.EXIT,
}


@dataclass(frozen=True, slots=True)
class Harness:
    """`leases` and `rival` are two workers; the callables simulate the passing of time or another service."""

    inbox: Inbox
    leases: Leases
    rival: Leases
    timelines: Timelines
    ids: Ids
    expire_lease: Callable[[ConversationId], Awaitable[None]]
    give_feedback: Callable[[Principal, ConversationId, Feedback], Awaitable[object]]
    age_lease: Callable[[ConversationId, float, float], Awaitable[None]]
    """Ages a lease as if it had been held for so many seconds and then had been expired for so many."""
    expire_holds: Callable[[], Awaitable[None]]
    """Let every worker be away for longer than it keeps its detached runs."""
    principal: Principal = field(default=ANN)

    async def say(
        self,
        text: str = "Hello.",
        conversation_id: ConversationId | None = None,
        *,
        key: IdempotencyKey | None = None,
        kind: SignalKind | None = None,
        uploads: tuple[Upload, ...] = (),
        trace: str | None = None,
        time_zone: str | None = None,
    ) -> Receipt:
        """Send a message; to a new conversation unless one is named."""
        message = IncomingMessage(
            conversation_id=conversation_id or self.ids.conversation(),
            create=conversation_id is None,
            text=text,
            uploads=uploads,
            turn_id=self.ids.turn(),
            signal_id=self.ids.signal(),
            kind=kind,
            trace=trace,
            time_zone=time_zone,
        )
        return await self.inbox.accept_message(self.principal, message, key)

    async def signal(
        self,
        conversation_id: ConversationId,
        kind: SignalKind,
        text: str = "",
        *,
        event: ExternalEvent | None = None,
        uploads: tuple[Upload, ...] = (),
        target: TurnId | None = None,
    ) -> Receipt:
        signal = IncomingSignal(self.ids.signal(), kind, text, uploads, target, event, self.ids.turn())
        return await self.inbox.accept_signal(self.principal, conversation_id, signal, None)

    async def send_event(
        self, conversation_id: ConversationId, event: ExternalEvent, *, uploads: tuple[Upload, ...] = ()
    ) -> Receipt:
        """Send an external event."""
        return await self.signal(conversation_id, SignalKind.EVENT, "It rang.", event=event, uploads=uploads)

    async def start_turn(self, text: str = "Hello.") -> Claim:
        """Send a message to a new conversation; the first worker claims it."""
        return await self.claim((await self.say(text)).conversation_id)

    async def claim(self, conversation_id: ConversationId) -> Claim:
        claim = await self.leases.try_claim(conversation_id)
        assert claim is not None
        return claim

    def upload(self, filename: str = "sales.csv") -> Upload:
        digest = "0" * 64
        artifact_id: ArtifactId = self.ids.artifact()
        key = f"conv_x/{digest}"
        return Upload(artifact_id, filename, "text/csv", 3, digest, key, "not scanned", datetime.now(UTC))


def turn_of(receipt: Receipt) -> TurnId:
    """The turn of a receipt that has one."""
    assert receipt.turn_id is not None
    return receipt.turn_id


def think(claim: Claim, *texts: str, after: tuple[Block, ...] = ()) -> tuple[Block, ...]:
    """One block for each text, chained after the claim's last block, or after the blocks given."""
    return write(claim, *(ThinkingBody(text=text) for text in texts), after=after)


def write(claim: Claim, *contents: Body, after: tuple[Block, ...] = ()) -> tuple[Block, ...]:
    """One block for each body; only for the body types above."""
    assert claim.turn_id is not None
    drafts = [BlockDraft(claim.turn_id, 1, _TYPES[type(content)], "ar:x", content, TS) for content in contents]
    next_seq = after[-1].seq + 1 if after else claim.next_seq
    return chain_blocks(drafts, next_seq=next_seq, last_hash=after[-1].hash if after else claim.last_hash)


def summarize(scope: Literal["history", "turn"], *, last_seq: int, text: str) -> RangeSummaryBody:
    """A summary of everything up to a block."""
    return RangeSummaryBody(
        scope=scope,
        first_seq=1,
        last_seq=last_seq,
        turn_ids=(),
        text=text,
        before_tokens=100,
        after_tokens=10,
        by="rules",
    )


def commit(claim: Claim, blocks: tuple[Block, ...], *signals: SignalChange) -> Commit:
    assert claim.turn_id is not None
    return Commit(claim.turn_id, blocks, EventCursor(claim.lease.fence, 7), signals=signals)


def closing(
    claim: Claim,
    *,
    seen_inbox: int,
    failed: bool = False,
    promote: Promotion | None = None,
    after: tuple[Block, ...] = (),
) -> Commit:
    """The commit that ends the claim's turn."""
    assert claim.turn_id is not None
    outcome = None if failed else Outcome.COMPLETED
    error = problem("model-failed", "The model did not answer.", 502) if failed else None
    exit_body = ExitBody(outcome=outcome, error=error, rounds=1, usage=TurnUsage(), elapsed_ms=5)
    status = TurnStatus.FAILED if failed else TurnStatus.COMPLETED
    return Commit(
        turn_id=claim.turn_id,
        blocks=write(claim, exit_body, after=after),
        cursor=EventCursor(claim.lease.fence, 9),
        close=TurnClose(status, outcome, error, TurnUsage(), seen_inbox, title="Greetings", promote=promote),
    )
