"""The buckets of one process are bounded, and peeking draws nothing."""

from everturn.limits.token_buckets import BucketTable, Limit

LIMIT = Limit(2, 60)


def test_peeking_draws_no_token() -> None:
    table = BucketTable(monotonic=lambda: 5.0)

    assert [table.peek("a", LIMIT).taken for _ in range(5)] == [True] * 5
    assert table.draw("a", LIMIT).left == 1


def test_the_longest_unused_bucket_is_removed_first() -> None:
    table = BucketTable(monotonic=lambda: 5.0, max_buckets=2)
    for key in ("a", "b", "a", "c"):
        table.draw(key, LIMIT)

    assert table.peek("a", LIMIT).taken is False
    assert table.peek("b", LIMIT).left == 1


def test_a_returned_token_is_available_and_counts_as_a_use() -> None:
    table = BucketTable(monotonic=lambda: 5.0, max_buckets=2)
    table.draw("a", LIMIT)
    table.draw("a", LIMIT)
    table.draw("b", LIMIT)

    level = table.give_back("a", LIMIT)
    table.draw("c", LIMIT)

    assert level.left == 1
    assert [table.draw("a", LIMIT).taken for _ in range(2)] == [True, False]
