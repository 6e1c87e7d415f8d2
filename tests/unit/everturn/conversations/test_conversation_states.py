"""A conversation's states are those that clients know."""

from everturn.conversations.model import ConversationState


def test_the_states_are_those_that_clients_know() -> None:
    assert [state.value for state in ConversationState] == ["idle", "queued", "running", "waiting", "error", "unknown"]
