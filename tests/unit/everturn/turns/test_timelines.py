"""The errors of a commit say what the caller needs."""

from everturn.core.errors import Conflict, OutOfOrder
from everturn.turns.ports import InboxMoved


def test_a_moved_inbox_says_where_it_is_now() -> None:
    error = InboxMoved(7)

    assert error.inbox_seq == 7
    assert "7" in str(error)


def test_both_are_conflicts() -> None:
    assert issubclass(InboxMoved, Conflict)
    assert issubclass(OutOfOrder, Conflict)
