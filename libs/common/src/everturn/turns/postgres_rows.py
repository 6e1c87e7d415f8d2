"""Mapping between values and rows: reading a row as a value, and JSON texts for what has no columns."""

from collections.abc import Sequence
from dataclasses import dataclass

from pydantic import TypeAdapter

from everturn.core.errors import Problem
from everturn.core.ids import ApprovalId
from everturn.core.threads import call_sized
from everturn.events.cursor import EventCursor, try_parse_cursor
from everturn.files.model import Artifact
from everturn.postgres.pool import Row
from everturn.timeline.blocks import Block, BlockType, parse_body
from everturn.timeline.turns import (
    ExternalEvent,
    Outcome,
    RequestEvent,
    Signal,
    SignalKind,
    SignalState,
    Turn,
    TurnRequest,
    TurnStatus,
    TurnUsage,
)
from everturn.turns.inbox import Receipt

BLOCK_COLUMNS = "seq, turn_id, round, type, ref, call_id, body, ts, ts_first, hash"
"""What `read_block` reads."""
BLOCK_BYTES = 512
"""Parsing the row of a block takes as long as parsing this much JSON more."""
# Of turn t: its blocks lie between its first_seq and that of the next turn that has begun.
END_SEQ = """
COALESCE((SELECT n.first_seq FROM turn n
           WHERE n.conversation_id = t.conversation_id AND n.ordinal > t.ordinal AND n.first_seq IS NOT NULL
           ORDER BY n.ordinal LIMIT 1), 9223372036854775807)
"""
TURN_COLUMNS = (
    "id, conversation_id, ordinal, status, attempt, request, created_at, started_at, ended_at, outcome, usage, error"
)
"""What `read_turn` reads, apart from leased_s and read_at, which only workers need."""
SIGNAL_COLUMNS = "id, turn_id, kind, payload, state, round, promoted_to, created_at"
"""What `read_signal` reads."""
_REQUEST = TypeAdapter(TurnRequest)
_EVENT = TypeAdapter(RequestEvent)
_RECEIPT = TypeAdapter(Receipt)


@dataclass(frozen=True, slots=True)
class SignalPayload:
    """The text and files of a signal. JSON, because a text column can't hold U+0000 and a message is stored
    verbatim."""

    text: str
    attachments: tuple[Artifact, ...] = ()
    event: ExternalEvent | None = None
    approval_id: ApprovalId | None = None


_PAYLOAD = TypeAdapter(SignalPayload)


def read_block(row: Row) -> Block:
    kind = BlockType(row["type"])
    return Block(
        seq=row["seq"],
        turn_id=row["turn_id"],
        round=row["round"],
        type=kind,
        ref=row["ref"],
        body=parse_body(kind, row["body"]),
        body_json=row["body"],
        ts=row["ts"],
        ts_first=row["ts_first"],
        call_id=row["call_id"],
        hash=row["hash"],
        stored_type=None if kind is not BlockType.UNKNOWN else row["type"],
    )


async def read_blocks(rows: Sequence[Row]) -> tuple[Block, ...]:
    """Parse the rows of blocks, in a thread if they are large. Call it after the transaction, whose connection would
    have to wait."""
    size = sum(len(row["body"]) + BLOCK_BYTES for row in rows)
    return await call_sized(size, lambda: tuple(map(read_block, rows)))


def read_turn(row: Row) -> Turn:
    return Turn(
        id=row["id"],
        conversation_id=row["conversation_id"],
        ordinal=row["ordinal"],
        status=TurnStatus(row["status"]),
        attempt=row["attempt"],
        request=read_request(row["request"]),
        created_at=row["created_at"],
        started_at=row["started_at"],
        ended_at=row["ended_at"],
        outcome=None if row["outcome"] is None else Outcome(row["outcome"]),
        usage=None if row["usage"] is None else TurnUsage.model_validate_json(row["usage"], extra="ignore"),
        error=None if row["error"] is None else Problem.model_validate_json(row["error"], extra="ignore"),
        leased_s=row.get("leased_s", 0.0),
        read_at=row.get("read_at"),
    )


def read_signal(row: Row) -> Signal:
    payload = read_payload(row["payload"])
    return Signal(
        id=row["id"],
        turn_id=row["turn_id"],
        kind=SignalKind(row["kind"]),
        text=payload.text,
        state=SignalState(row["state"]),
        created_at=row["created_at"],
        attachments=payload.attachments,
        round=row["round"],
        promoted_to=row["promoted_to"],
        event=payload.event,
        approval_id=payload.approval_id,
    )


def read_promoted(rows: Sequence[Row]) -> tuple[tuple[Artifact, ...], tuple[RequestEvent, ...]]:
    """What promoted signals add to the next turn, in order of arrival: the files of messages, and events."""
    payloads = [(row["id"], read_payload(row["payload"])) for row in sorted(rows, key=_inbox_seq)]
    files = tuple(artifact for _, payload in payloads if payload.event is None for artifact in payload.attachments)
    events = tuple(RequestEvent(id, each.text, each.event, each.attachments) for id, each in payloads if each.event)
    return files, events


def _inbox_seq(row: Row) -> int:
    return int(row["inbox_seq"])


def read_cursor(text: str) -> EventCursor:
    cursor = try_parse_cursor(text)
    if cursor is None:
        raise ValueError(f"{text!r} is not an event cursor")
    return cursor


def read_request(text: str) -> TurnRequest:
    return _REQUEST.validate_json(text, extra="ignore")


def build_request_json(request: TurnRequest) -> str:
    return _REQUEST.dump_json(request).decode()


def build_partial_request_json(request: TurnRequest) -> str:
    """Without its bundle and events, which `accept_turn` adds, because they depend on rows."""
    return _REQUEST.dump_json(request, exclude={"bundle_id", "events"}).decode()


def build_event_json(event: RequestEvent) -> str:
    return _EVENT.dump_json(event).decode()


def read_payload(text: str) -> SignalPayload:
    return _PAYLOAD.validate_json(text, extra="ignore")


def build_payload_json(
    text: str,
    attachments: tuple[Artifact, ...],
    event: ExternalEvent | None = None,
    approval_id: ApprovalId | None = None,
) -> str:
    return _PAYLOAD.dump_json(SignalPayload(text, attachments, event, approval_id)).decode()


def read_receipt(text: str) -> Receipt:
    return _RECEIPT.validate_json(text, extra="ignore")


def build_receipt_json(receipt: Receipt) -> str:
    return _RECEIPT.dump_json(receipt).decode()
