"""The buckets of one process are bounded, and looking takes nothing."""

from everturn.limits.token_buckets import BucketTable, Limit

LIMIT = Limit(2, 60)


def test_looking_takes_nothing() -> None:
    table = BucketTable(monotonic=lambda: 5.0)

    assert [table.look("a", LIMIT).taken for _ in range(5)] == [True] * 5
    assert table.draw("a", LIMIT).left == 1


def test_of_too_many_buckets_the_idlest_is_forgotten() -> None:
    table = BucketTable(monotonic=lambda: 5.0, max_buckets=2)
    for key in ("a", "b", "a", "c"):
        table.draw(key, LIMIT)

    assert table.look("a", LIMIT).taken is False
    assert table.look("b", LIMIT).left == 1


def test_what_is_given_back_is_there_again_and_counts_as_a_use() -> None:
    table = BucketTable(monotonic=lambda: 5.0, max_buckets=2)
    table.draw("a", LIMIT)
    table.draw("a", LIMIT)
    table.draw("b", LIMIT)

    level = table.give_back("a", LIMIT)
    table.draw("c", LIMIT)

    assert level.left == 1
    assert [table.draw("a", LIMIT).taken for _ in range(2)] == [True, False]
