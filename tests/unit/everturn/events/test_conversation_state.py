"""A conversation as REST reads it."""

from everturn.conversations.model import build_conversation_view
from everturn.events.turn_view import build_state
from everturn.events.views import StateView
from everturn.timeline.turns import Outcome
from everturn_testing.events.scenarios import Scenario


def test_a_page_becomes_the_state_with_the_cursor_it_includes() -> None:
    scenario = Scenario()
    scenario.start_turn("One")
    scenario.end_turn(Outcome.COMPLETED)
    scenario.start_turn("Two")

    state = build_state(scenario.page, tenant="t", project="p")

    assert [(turn.ordinal, turn.text, turn.status) for turn in state.turns] == [
        (1, "One", "completed"),
        (2, "Two", "running"),
    ]
    assert state.cursor == str(scenario.page.cursor)
    assert StateView.model_validate_json(state.model_dump_json()) == state


def test_times_are_iso_in_utc() -> None:
    view = build_conversation_view(Scenario().conversation)

    assert view.created_at == view.last_activity_at == "2026-01-02T03:04:05.000Z"
