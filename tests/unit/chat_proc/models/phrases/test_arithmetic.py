"""Arithmetic in a message is computed exactly; everything else is left alone."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chat_proc.models.phrases.arithmetic import try_compute


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ("what is 17*23?", "17 * 23 = 391"),
        ("2+2", "2 + 2 = 4"),
        ("compute (1+2)*3 - 4/2", "(1 + 2) * 3 - 4 / 2 = 7"),
        ("0.1 + 0.2", "0.1 + 0.2 = 0.3"),
        ("1/3", "1 / 3 ≈ 0.3333333333"),
        ("1,000 * 3", "1,000 * 3 = 3,000"),
        ("what's 15% of 80?", "15% of 80 = 12"),
        ("5 plus 7", "5 plus 7 = 12"),
        ("3 x 4", "3 x 4 = 12"),
        ("-2^2", "-2 ^ 2 = -4"),
        ("sqrt(2.25)", "sqrt(2.25) = 1.5"),
        ("square root of 2", "square root of 2 ≈ 1.4142135624"),
        ("2^10 and 5*5", "2 ^ 10 = 1,024\n5 * 5 = 25"),
        ("the average of 3, 4 and 8", "The average of 3, 4 and 8 is 5."),
        ("product of 2 and 5", "The product of 2 and 5 is 10."),
    ],
)
def test_arithmetic_is_computed(asked: str, told: str) -> None:
    assert try_compute(asked) == told


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        ("10/0", "division by zero"),
        ("0^-1", "division by zero"),
        ("9**9**9", "whole exponents"),
        ("2^0.5", "whole exponents"),
        ("99999^999", "too long"),
        ("10^100", "more than 60 digits"),
        ("sqrt(-1)", "no real square root"),
    ],
)
def test_arithmetic_without_a_result_says_why(asked: str, why: str) -> None:
    assert why in (try_compute(asked) or "")


@pytest.mark.parametrize(
    "text", ["", "hello", "42", "-5", "revenue + units", "1 +", "((1)", "what is love?", "(" * 90 + "1+1"]
)
def test_what_is_no_arithmetic_is_left_alone(text: str) -> None:
    assert try_compute(text) is None


@given(st.text(alphabet="0123456789+-*/^%()., sqrtof", max_size=80))
def test_no_text_breaks_or_stalls_the_reader(text: str) -> None:
    told = try_compute(text)

    assert told is None or len(told) < 1_000


@given(st.integers(-(10**6), 10**6), st.integers(1, 10**6))
def test_results_are_exact(first: int, second: int) -> None:
    assert (try_compute(f"{first} * {second}") or "").endswith(f"= {first * second:,}")
