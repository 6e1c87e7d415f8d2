"""Ids of a fork: of the same time and length, the same for the same row, and no others are touched."""

from everturn.core.ids import ConversationId, RandomIds, is_id
from everturn.lifecycle.forks import Renaming, derive_id, find_ids

ticks = iter(range(1_767_000_000_000, 1 << 48))
IDS = RandomIds(lambda: next(ticks))
SOURCE, FORK, OTHER = IDS.conversation(), IDS.conversation(), IDS.conversation()
SHA = "a" * 64


def test_a_derived_id_is_one_of_its_kind_and_sorts_as_the_old_one_does() -> None:
    old = [IDS.turn() for _ in range(20)]

    new = [derive_id(id, FORK) for id in old]

    assert all(is_id(id, "turn") for id in new)
    assert sorted(new) == new
    assert not set(old) & set(new)
    assert new == [derive_id(id, FORK) for id in old]
    assert new != [derive_id(id, OTHER) for id in old]


def test_ids_of_the_source_are_replaced_by_ids_of_the_fork() -> None:
    turn, file = IDS.turn(), IDS.artifact()
    renaming = Renaming(SOURCE, FORK, [turn, file])

    text = renaming.rename(f'{{"ref":"fi:{SOURCE}.{turn}.files/a","id":"{file}","rn":"ef:t:p:{SOURCE}:{turn}"}}')

    assert text == (
        f'{{"ref":"fi:{FORK}.{renaming[turn]}.files/a","id":"{renaming[file]}","rn":"ef:t:p:{FORK}:{renaming[turn]}"}}'
    )


def test_keys_of_objects_stay_because_a_fork_shares_them() -> None:
    renaming = Renaming(SOURCE, FORK, [])

    assert renaming.rename(f"{SOURCE}/{SHA} {SOURCE}/x") == f"{SOURCE}/{SHA} {FORK}/x"


def test_other_conversations_and_what_was_not_copied_keep_their_ids() -> None:
    late = IDS.turn()
    renaming = Renaming(SOURCE, FORK, [])

    assert renaming.rename(f"{OTHER} {late}") == f"{OTHER} {late}"
    assert renaming.get(late) is None
    assert renaming.get(None) is None


def test_ids_in_a_text_are_found() -> None:
    turn, file, signal = IDS.turn(), IDS.artifact(), IDS.signal()

    assert find_ids(f"x{turn}.{file}/{signal} {SOURCE} turn_1") == {turn, file, signal}


def test_the_source_has_a_new_name_too() -> None:
    assert Renaming(SOURCE, FORK, [])[ConversationId(SOURCE)] == FORK
