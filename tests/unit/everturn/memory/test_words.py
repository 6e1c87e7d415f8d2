import pytest
from helpers.linear_cost import check_linear, repeat
from hypothesis import given
from hypothesis import strategies as st

from everturn.memory.words import MAX_WORD_CHARS, find_words, fold


def test_case_accents_and_punctuation_do_not_count() -> None:
    assert find_words("Café, CAFE! café_au-lait 3.14", limit=99) == ("cafe", "au", "lait", "3", "14")


def test_scripts_without_blanks_are_cut_in_pairs() -> None:
    assert find_words("数据库 v2", limit=99) == ("数据", "据库", "v2")
    assert find_words("x数据y", limit=99) == ("x", "数据", "y")
    assert find_words("字", limit=99) == ("字",)


@pytest.mark.parametrize("unit", ["\u0301\u0323", "\u302e\U0001d165", "\uff9e\u0301", "\ufdfa", "e\u0301"])
def test_folding_takes_time_in_proportion_to_the_text(unit: str) -> None:
    check_linear(fold, repeat(unit, before="a"))


def test_full_width_and_ligatures_are_plain_letters() -> None:
    assert fold("\uff21\uff22\uff23 \ufb01ne \u00df") == "abc fine ss"


@given(st.text(), st.integers(min_value=1, max_value=20))
def test_words_are_bounded_distinct_and_stable(text: str, limit: int) -> None:
    words = find_words(text, limit=limit)

    assert len(words) <= limit
    assert len(set(words)) == len(words)
    assert all(0 < len(word) <= MAX_WORD_CHARS for word in words)
    assert find_words(" ".join(words), limit=limit) == words
