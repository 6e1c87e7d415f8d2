"""The port of forks has the driver's shape."""

from everturn.core.ids import ConversationId
from everturn.lifecycle.forks import ForkRequest


def test_a_fork_defaults_to_the_last_turn_and_the_same_title() -> None:
    wish = ForkRequest(ConversationId("conv_x"))

    assert (wish.turn_id, wish.title) == (None, None)
