"""Delays between restarts."""

from everturn_local.supervision.restarts import MAX_DELAY_S, build_restart_delay_s


def test_the_delay_doubles_with_every_recent_death_up_to_a_limit():
    delays = [build_restart_delay_s([100.0] * count, 100.0) for count in range(1, 9)]

    assert delays[:4] == [0.2, 0.4, 0.8, 1.6]
    assert delays[-1] == MAX_DELAY_S


def test_old_deaths_are_forgotten():
    assert build_restart_delay_s([0.0, 1.0, 2.0, 100.0], 100.0) == 0.2
