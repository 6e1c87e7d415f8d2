"""The museum: what a newer version wrote, and this version's worker between it."""

import asyncio
import json
from collections.abc import Mapping
from enum import Enum
from typing import Any, Literal, get_args, get_origin

import pytest
from pydantic import ValidationError

from chat_proc.agent.drafting import RoundContext
from chat_proc.agent.signal_folding import fold_signals, needs_response, settle_late_signals
from chat_proc.timeline.view import TimelineView
from chat_proc.worker.heartbeat import Heartbeat
from chat_proc.worker.sweeper import Sweeper
from everturn.core.identity import Lane
from everturn.core.ids import ConversationId, SignalId, TurnId
from everturn.core.loops import run_guarded
from everturn.events.model import AnyEvent, parse_envelope
from everturn.timeline.blocks import Block, BlockType, ExitBody
from everturn.timeline.turns import Outcome, Signal, SignalKind, SignalState
from everturn.turns.model import SignalChange
from everturn.turns.ports import Ring
from everturn.turns.postgres_rows import read_block
from everturn_testing.core import BEGINNING, FixedClock
from everturn_testing.queue.doorbells import MemoryDoorbells

ENVELOPE = {"id": "1-1", "ts": "2026-01-01T00:00:00Z", "conversation_id": "conv_1", "turn_id": "turn_1", "round": 1}
CONTEXT = RoundContext(TurnId("turn_1"), 3, 15, "now")
PAUSE = Signal(SignalId("sig_1"), TurnId("turn_1"), SignalKind("pause"), "x", SignalState.ACCEPTED, BEGINNING)


def test_a_signal_of_an_unknown_kind_is_rejected_so_that_its_sender_knows() -> None:
    folded = fold_signals([PAUSE], CONTEXT, lambda _: ())
    late_signals = settle_late_signals([PAUSE], CONTEXT, lambda: TurnId("turn_2"), lambda _: ())

    assert folded.content.signals == (SignalChange(PAUSE.id, SignalState.REJECTED, 3),)
    assert folded.content.drafts == ()
    assert not (folded.cancel or folded.stop or needs_response(PAUSE))
    assert late_signals.promote is None
    assert [change.state for change in late_signals.content.signals] == [SignalState.REJECTED]


def test_a_block_of_an_unknown_type_is_not_shown_to_the_model() -> None:
    view = TimelineView([newer_block()])

    assert not any("beams" in item.text for item in view.items)


def newer_block() -> Block:
    where = {"seq": 1, "turn_id": "turn_1", "round": 1, "type": "react.hologram", "ref": "r", "call_id": None}
    block = read_block({**where, "ts": "t", "ts_first": None, "body": '{"beams":3}', "hash": "0"})
    assert block.type is BlockType.UNKNOWN
    return block


def test_an_end_of_an_unknown_outcome_and_reason_is_read() -> None:
    where = {"seq": 1, "turn_id": "turn_1", "round": 1, "type": "react.exit", "ref": "r", "call_id": None}
    body = (
        '{"outcome": "parked", "cut_reason": "mood", "error": null, "rounds": 1,'
        ' "usage": {"input_tokens": 1, "output_tokens": 1, "naps": 2}, "elapsed_ms": 1, "mood": "good"}'
    )
    block = read_block({**where, "ts": "t", "ts_first": None, "body": body, "hash": "0"})

    assert isinstance(block.body, ExitBody)
    assert (block.body.outcome, block.body.cut_reason) == (Outcome.UNKNOWN, "incomplete")


def find_choices() -> list[tuple[str, str]]:
    """Every field of an event that has one of a few values, by the event's type."""
    found: list[tuple[str, str]] = []
    for kind in get_args(AnyEvent):
        for name, field in kind.model_fields.items():
            options = {field.annotation, *get_args(field.annotation)}
            if name != "type" and any(is_choice(option) for option in options):
                found.append((kind.model_fields["type"].default, name))
    return found


def is_choice(annotation: Any) -> bool:
    is_enum = isinstance(annotation, type) and issubclass(annotation, Enum)
    return is_enum or get_origin(annotation) is Literal or any(map(is_choice, get_args(annotation)))


@pytest.mark.parametrize(("kind", "field"), find_choices())
def test_a_value_that_a_newer_server_sends_in_an_event_is_read(kind: str, field: str) -> None:
    parsed: list[object] = []
    try:
        parsed.append(
            parse_envelope(json.dumps({**ENVELOPE, "type": kind, "data": {field: "tomorrow", "mood": "good"}}))
        )
    except ValidationError as error:
        # Other fields of this event are missing here; about this one nothing may be said.
        parsed += [each["loc"] for each in error.errors() if field in each["loc"]]

    assert not [each for each in parsed if isinstance(each, tuple)]


class Sweeps:
    """Fails as a driver does that meets a row which it can't read, `failures` times."""

    def __init__(self, failures: int) -> None:
        self.failures = failures

    async def claim_due_doorbells(self, *, takeovers: bool) -> tuple[Ring, ...]:
        self.failures -= 1
        if self.failures >= 0:
            raise ValueError("unreadable")
        return (Ring(ConversationId("conv_1"), Lane("gold")),)

    async def claim_next_doorbells(self, conversation_id: ConversationId) -> tuple[Ring, ...]:
        return ()


async def test_the_sweeper_rings_for_an_unknown_lane() -> None:
    doorbells = MemoryDoorbells()
    sweeper = Sweeper(Sweeps(failures=1), doorbells, FixedClock(), lease_s=15.0)

    task = asyncio.create_task(run_guarded("test_sweeper", sweeper.run))
    found = await doorbells.next_ring([Lane.ANONYMOUS], timeout_s=30)
    task.cancel()

    assert found == "conv_1"


class Leases:
    async def renew(self, held: Mapping[ConversationId, int]) -> Mapping[ConversationId, int]:
        raise ValueError("unreadable")


class Turn:
    fence = 1
    is_releasing = False

    def __init__(self) -> None:
        self.lost = asyncio.Event()

    def notice_inbox(self, inbox_seq: int) -> None: ...
    def confirm_lease(self, at_s: float) -> None: ...
    def ring_inbox(self) -> None: ...
    def lose_lease(self) -> None:
        self.lost.set()


async def test_a_lease_is_given_up_in_time_after_any_renewal_error() -> None:
    clock = FixedClock()
    heartbeat, turn = Heartbeat(Leases(), clock, lease_s=0.06), Turn()
    heartbeat.hold(ConversationId("conv_1"), turn, clock.monotonic())

    task = asyncio.create_task(run_guarded("test_heartbeat", heartbeat.run))
    clock.advance(0.055)
    async with asyncio.timeout(30):
        await turn.lost.wait()
    task.cancel()
