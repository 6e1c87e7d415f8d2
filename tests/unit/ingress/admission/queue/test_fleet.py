"""What workers tell of themselves sums up to how fast the queue drains."""

from everturn.ports.runs.presences import WorkerPresence
from everturn.testing.fixed_clock import FixedClock
from everturn.testing.runs.presences import MemoryPresences
from ingress.admission.queue.fleet import GUESSED_TURN_S, Fleet, FleetWatch, build_fleet


def worker(name: str, slots: int, turn_s: float | None = None) -> WorkerPresence:
    return WorkerPresence(name, "", None, slots, turn_s)


def test_each_worker_counts_by_its_slots() -> None:
    fleet = build_fleet((worker("a", 3, 10.0), worker("b", 1, 2.0), worker("c", 4)))

    assert fleet == Fleet(8, 8.0)
    assert fleet.interval_us == 1_000_000


def test_nobody_is_an_empty_fleet_with_a_guess() -> None:
    assert build_fleet(()) == Fleet(0, GUESSED_TURN_S)
    assert Fleet(0, 5.0).interval_us == 5_000_000


async def test_workers_are_asked_for_again_after_a_second() -> None:
    clock = FixedClock()
    presences = MemoryPresences(monotonic=clock.monotonic)
    watch = FleetWatch(presences, monotonic=clock.monotonic)
    assert (await watch.load()).slots == 0

    await presences.save(worker("a", 2), ttl_s=60)

    assert (await watch.load()).slots == 0
    clock.advance(2)
    assert (await watch.load()).slots == 2
