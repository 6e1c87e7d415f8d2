"""Every time of a lease follows from its duration."""

import pytest

from everturn.core.lease_timing import LeaseTiming
from everturn.core.retry import RetryPolicy
from everturn.postgres.pool import build_session_settings


@pytest.mark.parametrize("ttl_s", [1.0, 2.0, 5.0, 15.0, 60.0, 120.0])
def test_every_time_of_a_lease_follows_from_how_long_it_lasts(ttl_s: float) -> None:
    timing = LeaseTiming(ttl_s)

    assert 3 * timing.renew_every_s < timing.sure_s < timing.give_up_s < ttl_s
    assert timing.lock_timeout_s < timing.idle_in_transaction_s <= ttl_s / 3
    assert sum(RetryPolicy.within_lease(timing).pauses_s) < ttl_s / 2
    assert build_session_settings(timing)["lock_timeout"] == f"{timing.lock_timeout_s * 1000:.0f}ms"
