"""Folding events gives what REST reads, from any cut point, with overlaps and repeats."""

from typing import Any

import pytest
from helpers.event_examples import TurnScript, empty, play, read, turn_scripts
from hypothesis import given, settings
from hypothesis import strategies as st

from everturn.events import model as events
from everturn.events.fold import fold_event
from everturn.events.model import AnyEvent, Envelope, encode_envelope, parse_envelope
from everturn.events.turn_view import build_file_view
from everturn.events.views import CitationView, EventView, SignalView, StateView
from everturn.timeline.turns import Outcome, SignalKind, SignalState
from everturn_testing.events.scenarios import PROJECT, TENANT, Scenario, make_artifact
from everturn_testing.states import comparable_state


def fold(state: StateView, envelopes: list[Envelope]) -> StateView:
    for envelope in envelopes:
        state = fold_event(state, parse_envelope(encode_envelope(envelope)))
    return state


@settings(max_examples=80, deadline=None)
@given(scripts=turn_scripts)
def test_folding_the_whole_stream_gives_what_rest_reads(scripts: list[TurnScript]) -> None:
    scenario = play(scripts)

    folded = fold(empty(scenario), scenario.events)

    assert comparable_state(folded) == comparable_state(read(scenario.page))


@settings(max_examples=80, deadline=None)
@given(scripts=turn_scripts, data=st.data())
def test_snapshot_and_overlapping_stream_equal_rest(scripts: list[TurnScript], data: st.DataObject) -> None:
    scenario = play(scripts)
    page = data.draw(st.sampled_from(scenario.pages))
    cut = next((n for n, event in enumerate(scenario.events) if event.id == str(page.cursor)), -1) + 1
    overlap = data.draw(st.integers(0, cut))

    folded = fold(read(page), [event for event in scenario.events[cut - overlap : cut] if event.id])
    folded = fold(folded, scenario.events[cut:])

    assert comparable_state(folded) == comparable_state(read(scenario.page))


@settings(max_examples=80, deadline=None)
@given(scripts=turn_scripts, data=st.data())
def test_going_back_in_the_stream_and_on_again_changes_nothing(scripts: list[TurnScript], data: st.DataObject) -> None:
    scenario = play(scripts)
    backs = data.draw(st.lists(st.tuples(st.integers(0, len(scenario.events)), st.integers(0, 10)), max_size=4))
    folded = empty(scenario)

    for upto, back in sorted(backs):
        folded = fold(folded, scenario.events[:upto])
        folded = fold(folded, scenario.events[max(0, upto - back) : upto])
    folded = fold(folded, scenario.events)

    assert comparable_state(folded) == comparable_state(read(scenario.page))


@settings(max_examples=60, deadline=None)
@given(scripts=turn_scripts, data=st.data())
def test_a_snapshot_in_the_middle_of_the_stream_replaces_what_was_folded(
    scripts: list[TurnScript], data: st.DataObject
) -> None:
    scenario = play(scripts)
    page = data.draw(st.sampled_from(scenario.pages))
    snapshot = envelope_of(scenario, events.StreamSnapshot(state=read(page)))

    folded = fold(empty(scenario), [*scenario.events, snapshot, *scenario.events])

    assert comparable_state(folded) == comparable_state(read(scenario.page))


def envelope_of(
    scenario: Scenario, data: AnyEvent, event_id: str | None = None, *, turn_id: str | None = None
) -> Envelope:
    return Envelope(
        id=event_id,
        type=data.type,
        ts="2026-01-02T03:04:05.000Z",
        conversation_id=scenario.conversation.id,
        turn_id=turn_id or scenario.records[-1].turn.id,
        round=1,
        data=data,
    )


def test_a_second_terminal_event_changes_nothing() -> None:
    scenario = Scenario()
    scenario.start_turn("Hello")
    scenario.end_turn(Outcome.COMPLETED)
    state = fold(empty(scenario), scenario.events)
    second = next(event for event in scenario.events if event.type == "chat.complete")
    later = events.ChatComplete(outcome="stopped", rounds=9, usage=second.data.usage, elapsed_ms=1)  # type: ignore[union-attr]

    after = fold(state, [envelope_of(scenario, later, "9-1")])

    assert after.turns == state.turns


@pytest.mark.parametrize(
    "event",
    [
        events.ChatCompaction(status="completed", reason="soft", before_tokens=9, after_tokens=5),
        events.ChatTool(call_id="call_1-1", tool_id="a.b", kind="progress", text="Half."),
    ],
)
def test_transient_events_do_not_change_the_state(event: events.AnyEvent) -> None:
    scenario = Scenario()
    scenario.start_turn("Hello")
    state = fold(empty(scenario), scenario.events)

    after = fold(state, [envelope_of(scenario, event, "9-1")])

    assert after == state.model_copy(update={"cursor": "9-1"})


def test_an_event_of_an_unknown_turn_is_ignored() -> None:
    scenario = Scenario()
    scenario.start_turn("Hello")
    state = read(scenario.page)

    after = fold(state, [envelope_of(scenario, events.ChatFollowups(items=("a",)), "2-1", turn_id="turn_older")])

    assert after.turns == state.turns
    assert after.cursor == "2-1"


def test_an_event_of_another_conversation_is_ignored() -> None:
    scenario, other = Scenario(), Scenario()
    scenario.start_turn("Hello")
    foreign = envelope_of(scenario, events.ConvTitle(title="Not mine"), "8-1")
    state = read(scenario.page)

    after = fold(state, [foreign.model_copy(update={"conversation_id": other.conversation.id + "x"})])

    assert after == state


def test_a_late_hint_does_not_reopen_a_settled_signal() -> None:
    scenario = Scenario()
    turn_id = scenario.start_turn("Hello")
    signal_id = scenario.say(SignalKind.STEER, "Stop")
    late = [event for event in scenario.events if event.id is None]
    scenario.settle_signals(SignalState.APPLIED)
    state = fold(empty(scenario), scenario.events)
    queued = events.ConvStatus(state="queued", turn_id=turn_id, position=0)

    after = fold(state, [*late, envelope_of(scenario, queued)])

    assert [(signal.signal_id, signal.state) for signal in after.turns[0].signals] == [(signal_id, "applied")]
    assert after.conversation.state == "running"


@pytest.mark.parametrize("status", ["queued", "running"])
def test_a_late_hint_does_not_reopen_an_ended_turn(status: str) -> None:
    scenario = Scenario()
    turn_id = scenario.start_turn("Hello")
    scenario.end_turn(Outcome.COMPLETED)
    state = fold(empty(scenario), scenario.events)

    hint = events.ConvStatus.model_validate({"state": status, "turn_id": turn_id})
    after = fold(state, [envelope_of(scenario, hint)])

    assert after.conversation.state == "idle"


def receipt(signal_id: str, state: str, text: str = "x", **more: Any) -> events.ChatSignal:
    return events.ChatSignal.model_validate(
        {"signal_id": signal_id, "kind": "followup", "state": state, "text": text, **more}
    )


def test_a_rewind_keeps_receipts_its_worker_has_not_read() -> None:
    scenario = Scenario()
    turn_id = scenario.start_turn("Hello")
    (blank,) = read(scenario.page).turns
    data_of_events = [receipt("sig_1", "accepted"), receipt("sig_2", "retracted"), receipt("sig_3", "promoted")]
    hints = [envelope_of(scenario, data, turn_id=turn_id) for data in data_of_events]

    after = fold(read(scenario.page), [*hints, envelope_of(scenario, events.ChatRewind(turn=blank), "1-90")])

    assert [(signal.signal_id, signal.state) for signal in after.turns[0].signals] == [
        ("sig_1", "accepted"),
        ("sig_2", "retracted"),
        ("sig_3", "promoted"),
    ]


def test_a_rewind_keeps_newer_receipts_from_hints() -> None:
    scenario = Scenario()
    turn_id = scenario.start_turn("Hello")
    stale = events.ChatRewind(
        turn=read(scenario.page)
        .turns[0]
        .model_copy(
            update={
                "signals": (
                    SignalView(signal_id="sig_1", kind="followup", state="accepted", text="old"),
                    SignalView(signal_id="sig_2", kind="followup", state="accepted", text="x"),
                    SignalView(signal_id="sig_3", kind="followup", state="applied", text="x", round=2),
                )
            }
        )
    )
    data_of_events = [receipt("sig_1", "accepted", "new"), receipt("sig_2", "retracted"), receipt("sig_3", "accepted")]
    hints = [envelope_of(scenario, data, turn_id=turn_id) for data in data_of_events]

    after = fold(read(scenario.page), [*hints, envelope_of(scenario, stale, "1-90")])

    assert [(signal.state, signal.text, signal.round) for signal in after.turns[0].signals] == [
        ("accepted", "new", None),
        ("retracted", "x", None),
        ("applied", "x", 2),
    ]


def test_the_receipt_of_an_event_says_what_sort_it_is() -> None:
    scenario = Scenario()
    turn_id = scenario.start_turn("Hello")
    event = receipt("sig_1", "applied", kind="event", round=2, event={"kind": "form", "reactive": True})

    after = fold(read(scenario.page), [envelope_of(scenario, event, "1-90", turn_id=turn_id)])

    (signal,) = after.turns[0].signals
    assert (signal.kind, signal.event) == ("event", EventView(kind="form", reactive=True))


def test_a_turn_returned_by_its_worker_is_queued_again() -> None:
    scenario = Scenario()
    turn_id = scenario.start_turn("Hello")
    state = fold(empty(scenario), scenario.events)

    after = fold(state, [envelope_of(scenario, events.ConvStatus(state="queued", turn_id=turn_id), "1-99")])

    assert after.turns[0].status == "queued"
    assert after.conversation.state == "queued"


def test_citations_are_kept_by_number_and_titles_change_the_conversation() -> None:
    scenario = Scenario()
    scenario.start_turn("Hello")
    first = CitationView(sid=2, title="Two", url="https://two.test", source_type="web")
    second = CitationView(sid=1, title="One", url="https://one.test", source_type="web")
    better = first.model_copy(update={"title": "Two, corrected"})

    after = fold(
        read(scenario.page),
        [
            envelope_of(scenario, events.ChatCitations(sources=(first,)), "1-50"),
            envelope_of(scenario, events.ChatCitations(sources=(second, better)), "1-51"),
            envelope_of(scenario, events.ConvTitle(title="Numbers"), "1-52"),
        ],
    )

    assert after.turns[0].citations == (second, better)
    assert after.conversation.title == "Numbers"


def test_internal_files_are_never_shown() -> None:
    scenario = Scenario()
    turn_id = scenario.start_turn("Hello")
    names = {"a.txt": "external", "b.txt": "internal"}
    files = [build_file_view(make_artifact(turn_id, name), tenant=TENANT, project=PROJECT) for name in names]
    changed = tuple(file.model_copy(update={"visibility": names[file.filename]}) for file in files)

    after = fold(read(scenario.page), [envelope_of(scenario, events.ChatFiles(files=changed), "1-50")])

    assert [file.filename for file in after.turns[0].files] == ["a.txt"]


def test_events_about_the_connection_change_nothing_but_the_cursor() -> None:
    scenario = Scenario()
    scenario.start_turn("Hello")
    state = read(scenario.page)
    data_of_events = [events.Ready(cursor="0-0"), events.StreamGap(after="1-1"), events.ServerShutdown(retry_ms=5)]

    after = fold(state, [envelope_of(scenario, data) for data in data_of_events])

    assert after == state
