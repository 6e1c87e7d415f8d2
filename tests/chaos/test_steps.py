"""Schedules are drawn from their seeds and from nothing else."""

from schedules.steps import Empty, Kill, Say, build_schedule


def test_a_seed_gives_the_same_schedule_again():
    assert build_schedule(7) == build_schedule(7)
    assert build_schedule(7) != build_schedule(8)


def test_schedules_say_much_and_break_much():
    drawn = [timed.step for seed in range(50) for timed in build_schedule(seed)]

    assert sum(isinstance(step, Say) for step in drawn) > 300
    assert {step.part for step in drawn if isinstance(step, Kill)} > {"worker-1", "ingress-2", "postgres", "redis"}
    assert any(isinstance(step, Empty) for step in drawn)
