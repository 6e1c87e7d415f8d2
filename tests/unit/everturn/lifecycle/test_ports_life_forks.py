"""The port of forks has the driver's shape."""

from everturn.core.ids import ConversationId
from everturn.lifecycle.forks import Forks, ForkWish
from everturn.lifecycle.postgres_forks import PostgresForks
from everturn_testing.port_shape import find_differences


def test_the_driver_has_the_shape_of_the_port() -> None:
    assert find_differences(Forks, PostgresForks) == []


def test_a_fork_is_of_the_last_turn_and_keeps_its_title_unless_told_otherwise() -> None:
    wish = ForkWish(ConversationId("conv_x"))

    assert (wish.turn_id, wish.title) == (None, None)
