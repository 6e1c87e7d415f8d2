"""What is compared between a fold and REST."""

from everturn.events.turn_view import build_state
from everturn.timeline.turns import Outcome
from everturn_testing.events.scenarios import Scenario
from everturn_testing.states import comparable_state


def test_only_fields_that_events_contain_are_compared() -> None:
    scenario = Scenario()
    scenario.start_turn("Hello")
    scenario.end_turn(Outcome.COMPLETED)
    state = build_state(scenario.page, tenant="t", project="p")
    touched = state.conversation.model_copy(update={"last_activity_at": "later"})
    renamed = state.conversation.model_copy(update={"title": "Other"})

    assert comparable_state(state) == comparable_state(
        state.model_copy(update={"cursor": "7-7", "conversation": touched})
    )
    assert comparable_state(state) != comparable_state(state.model_copy(update={"conversation": renamed}))
    assert comparable_state(state) != comparable_state(state.model_copy(update={"turns": ()}))
