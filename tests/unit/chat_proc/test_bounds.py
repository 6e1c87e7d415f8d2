"""The bounds of a worker fit those of its neighbours: uploads, leases, Postgres."""

import pytest

from chat_proc.bounds import BOUNDS, count_connections
from everturn.turns.inbox import UPLOAD_LIMIT


def test_orphans_are_waited_for_longer_than_an_upload_may_take() -> None:
    assert BOUNDS.orphans_after_s > UPLOAD_LIMIT.total_seconds()


@pytest.mark.parametrize(("slots", "connections"), [(1, 8), (4, 8), (20, 40), (256, 100)])
def test_a_worker_opens_two_connections_a_slot_within_what_postgres_allows(slots: int, connections: int) -> None:
    assert count_connections(slots) == connections
