"""The ratio of characters to tokens learns from usage and never leaves sane bounds; media costs by rule."""

from hypothesis import given
from hypothesis import strategies as st

from everturn.models.tokens import CharsPerToken, estimate_media_tokens


def test_the_ratio_moves_to_what_the_provider_counts() -> None:
    ratio = CharsPerToken()

    for _ in range(30):
        ratio = ratio.learned(chars=10_000, tokens=5_000)

    assert abs(ratio.ratio - 2.0) < 0.01
    assert abs(ratio.tokens_for(10_000) - 5_000) < 50


def test_a_short_call_does_not_change_the_ratio() -> None:
    assert CharsPerToken().learned(chars=10, tokens=50) == CharsPerToken()


@given(st.lists(st.tuples(st.integers(-5, 10**9), st.integers(-5, 10**9)), max_size=50))
def test_no_lesson_drives_the_ratio_out_of_bounds(lessons: list[tuple[int, int]]) -> None:
    ratio = CharsPerToken()

    for chars, tokens in lessons:
        ratio = ratio.learned(chars, tokens)

    assert 1.0 <= ratio.ratio <= 8.0


def test_media_costs_by_its_kind() -> None:
    costs = [
        estimate_media_tokens("image/png", 10**6),
        estimate_media_tokens("application/pdf", 1),
        estimate_media_tokens("application/pdf", 3_000_000),
    ]

    assert costs == [1_600, 2_000, 100_000]
