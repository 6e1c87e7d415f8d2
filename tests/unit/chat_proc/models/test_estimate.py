"""Token estimates learn a model's ratio from its usage and never leave sane bounds."""

from hypothesis import given
from hypothesis import strategies as st

from chat_proc.models.estimate import CharsPerToken, count_chars, estimate_media, estimate_request
from everturn.model.llm.prompts import MediaPart
from everturn.testing.model_contract import build_request


def test_the_ratio_moves_to_what_the_provider_counts() -> None:
    ratio = CharsPerToken()

    for _ in range(30):
        ratio = ratio.learned(chars=10_000, tokens=5_000)

    assert abs(ratio.ratio - 2.0) < 0.01
    assert abs(ratio.tokens_for(10_000) - 5_000) < 50


def test_a_short_call_teaches_nothing() -> None:
    assert CharsPerToken().learned(chars=10, tokens=50) == CharsPerToken()


@given(st.lists(st.tuples(st.integers(-5, 10**9), st.integers(-5, 10**9)), max_size=50))
def test_no_lesson_drives_the_ratio_out_of_bounds(lessons: list[tuple[int, int]]) -> None:
    ratio = CharsPerToken()

    for chars, tokens in lessons:
        ratio = ratio.learned(chars, tokens)

    assert 1.0 <= ratio.ratio <= 8.0


def test_estimates_round_up_and_count_all_messages() -> None:
    request = build_request("abcd", system="efg")

    assert count_chars(request) == 7
    assert estimate_request(request, CharsPerToken(2.0)) == 4


def test_media_cost_by_kind() -> None:
    image = estimate_media(MediaPart("image/png", b"x" * 10**6, "a.png"))
    small = estimate_media(MediaPart("application/pdf", b"x", "a.pdf"))
    large = estimate_media(MediaPart("application/pdf", b"x" * 3_000_000, "a.pdf"))

    assert (image, small, large) == (1_600, 2_000, 100_000)
