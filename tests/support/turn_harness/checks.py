"""What must hold of a conversation whose turns have ended, whatever happened on the way."""

from collections import Counter
from collections.abc import Sequence
from functools import reduce
from typing import Any

import pytest

from everturn.events.cursor import ORIGIN, EventCursor, try_parse_cursor
from everturn.events.fold import fold_event
from everturn.events.model import TERMINAL_TYPES
from everturn.models.port import PromptMessage, TextPart, ToolCallPart, ToolResultPart
from everturn.timeline.blocks import (
    Author,
    Block,
    BlockType,
    EventBody,
    ExitBody,
    RoundStartBody,
    SignalBody,
    StepResultBody,
    ToolCallBody,
    ToolResultBody,
)
from everturn.timeline.turns import SignalState, TurnUsage
from everturn.turns.model import EffectState
from everturn_testing.states import comparable_state
from everturn_testing.timeline import first_broken_link
from turn_harness.harness import Bench


async def check_conversation(bench: Bench, *, ends_may_repeat: bool = False, events_may_be_lost: bool = False) -> None:
    """The central properties. `ends_may_repeat`: a worker died between publishing an end and noting that it did.

    `events_may_be_lost`: the stream was emptied, so that a client takes a snapshot when it finds a gap.
    """
    check_blocks(bench)
    check_ledgers(bench)
    await check_events(bench, ends_may_repeat=ends_may_repeat, events_may_be_lost=events_may_be_lost)


def check_blocks(bench: Bench) -> None:
    """The chain holds, times never go back, and each turn is one run of blocks with its exit last."""
    blocks = bench.blocks
    assert [block.seq for block in blocks] == list(range(1, len(blocks) + 1))
    assert first_broken_link(blocks) is None
    times = [block.ts for block in blocks]
    assert times == sorted(times)
    assert all(block.ts_first is None or block.ts_first <= block.ts for block in blocks)
    turn_ids = [block.turn_id for block in blocks]
    assert list(dict.fromkeys(turn_ids)) == [turn.id for turn in bench.turn_rows]
    for turn in bench.turn_rows:
        assert not turn.status.is_open, turn
        own = [block for block in blocks if block.turn_id == turn.id]
        assert turn_ids[own[0].seq - 1 : own[-1].seq] == [turn.id] * len(own)
        assert [block.type for block in own].count(BlockType.EXIT) == 1
        assert own[-1].type is BlockType.EXIT
        assert own[0].type is BlockType.TURN_HEADER
        starts = [block.round for block in own if block.type is BlockType.ROUND_START]
        assert starts == sorted(set(starts))
        check_lanes(own)


def check_lanes(own: list[Block]) -> None:
    """A step has at most one result, and nothing of its lane comes after it."""
    lane_of = {block.round: block.body.lane for block in own if isinstance(block.body, RoundStartBody)}
    ended: set[str] = set()
    for block in own:
        is_of_turn = block.type is BlockType.EXIT or block.author is Author.USER
        lane = "" if is_of_turn else lane_of.get(block.round, "")
        assert lane not in ended, block
        if isinstance(block.body, StepResultBody):
            assert block.body.step == lane
            ended.add(lane)


def check_ledgers(bench: Bench) -> None:
    """Usage adds up everywhere; no call and no signal is left open."""
    for turn in bench.turn_rows:
        own = [block for block in bench.blocks if block.turn_id == turn.id]
        exit_body = own[-1].body
        assert isinstance(exit_body, ExitBody)
        events = [event for owner, event in bench.platform.usage if owner == turn.id]
        total = TurnUsage(
            input_tokens=sum(event.input_tokens for event in events),
            output_tokens=sum(event.output_tokens for event in events),
            cache_read_tokens=sum(event.cache_read_tokens for event in events),
            cost_usd=sum(event.cost_usd for event in events),
            cost_known=all(event.cost_known for event in events),
        )
        for reported in (exit_body.usage, turn.usage):
            assert reported is not None
            assert reported.model_copy(update={"cost_usd": 0}) == total.model_copy(update={"cost_usd": 0})
            assert reported.cost_usd == pytest.approx(total.cost_usd)
        calls = [block.call_id for block in own if isinstance(block.body, ToolCallBody)]
        results = [block.call_id for block in own if isinstance(block.body, ToolResultBody)]
        assert len(set(calls)) == len(calls)
        assert len(set(results)) == len(results) and set(results) <= set(calls)
        assert exit_body.error is not None or len(results) == len(calls)
        loops = [block.call_id for block in own if isinstance(block.body, ToolResultBody) and block.body.parent is None]
        for call_id in loops:
            assert call_id is not None
            assert bench.platform.effects[turn.id, call_id].state is not EffectState.INTENDED
    for row in bench.platform.signals.values():
        # Only an event that waits for the next turn may be open still.
        assert row.signal.state is not SignalState.ACCEPTED or row.signal.turn_id is None, row
    reported = [block.body.signal_id for block in bench.blocks if isinstance(block.body, SignalBody | EventBody)]
    assert len(reported) == len(set(reported))


async def check_events(bench: Bench, *, ends_may_repeat: bool = False, events_may_be_lost: bool = False) -> None:
    """Ids increase, each turn ends once, and folding from any snapshot gives what REST reads."""
    published = await bench.published()
    ids = [try_parse_cursor(event.id or "") or ORIGIN for event in published]
    assert all(one < other for one, other in zip([ORIGIN, *ids], ids, strict=False)), ids
    ends = Counter(event.turn_id for event in published if event.type in TERMINAL_TYPES)
    if not events_may_be_lost:
        assert set(ends) == {turn.id for turn in bench.turn_rows}
        assert ends_may_repeat or set(ends.values()) == {1}, ends
    final = comparable_state(bench.state())
    for snapshot in bench.snapshots:
        if events_may_be_lost and await finds_gap(bench, try_parse_cursor(snapshot.cursor) or ORIGIN):
            # The client takes a newer snapshot.
            continue
        # Hints may all be lost, and they may come early or late.
        for seen in (published, [*bench.hints, *published, *bench.hints]):
            assert comparable_state(reduce(fold_event, seen, snapshot)) == final, f"from {snapshot.cursor}"


async def finds_gap(bench: Bench, cursor: EventCursor) -> bool:
    """Whether a client that reads on from here misses events."""
    for entry in await bench.events.load_after(bench.conversation_id, cursor, max_entries=1_000_000):
        if entry.prev > cursor:
            return True
        cursor = entry.events[-1].id
    return cursor < bench.last_published


def flatten(messages: Sequence[PromptMessage]) -> list[tuple[Any, ...]]:
    """The parts in order, without cache points."""
    flat: list[tuple[Any, ...]] = []
    for message in messages:
        for part in message.parts:
            match part:
                case TextPart(text=text):
                    flat.append((message.role, text))
                case ToolCallPart(call_id=call_id, name=name, arguments=arguments):
                    flat.append((message.role, call_id, name, arguments))
                case ToolResultPart(call_id=call_id, text=text):
                    flat.append((message.role, call_id, text))
                case _:
                    raise AssertionError(part)
    return flat
