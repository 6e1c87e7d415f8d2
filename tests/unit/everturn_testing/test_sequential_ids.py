"""The ids of tests are predictable."""

from everturn.core.ids import is_id
from everturn_testing.core import SequentialIds


def test_ids_are_well_formed_ordered_and_the_same_in_every_run() -> None:
    one, other = SequentialIds(), SequentialIds()

    made = [one.turn() for _ in range(300)]

    assert made == [other.turn() for _ in range(300)] == sorted(set(made))
    assert all(is_id(turn_id, "turn") for turn_id in made)


def test_every_prefix_counts_for_itself() -> None:
    ids = SequentialIds()
    ids.turn()

    kinds = [ids.conversation(), ids.call(), ids.artifact(), ids.signal(), ids.plan()]

    assert {made.partition("_")[2] for made in kinds} == {SequentialIds().turn().partition("_")[2]}
