"""The port of forks has the driver's shape."""

from everturn.core.ids import ConversationId
from everturn.lifecycle.forks import ForkWish


def test_a_fork_is_of_the_last_turn_and_keeps_its_title_unless_told_otherwise() -> None:
    wish = ForkWish(ConversationId("conv_x"))

    assert (wish.turn_id, wish.title) == (None, None)
