"""Expressions of a model can't stop a worker."""

import time

import pytest

from chat_proc.workspace.text_search import MAX_PATTERN_CHARS, Pattern
from everturn.core.errors import Invalid


def test_a_match_is_found_with_its_place_in_characters() -> None:
    assert Pattern(r"é+").find("xx éé") == (3, 5)
    assert Pattern(r"(?i)TODO").find("a todo") == (2, 6)
    assert Pattern("b").find("a") is None


@pytest.mark.parametrize("pattern", [r"(a+)+$", r"(a|aa)+$", r"(.*a){20}$", r"(x+x+)+y"])
def test_a_catastrophic_expression_takes_no_longer_than_another(pattern: str) -> None:
    started = time.process_time()

    Pattern(pattern).find("a" * 100_000 + "x" * 1_000 + "b")

    assert time.process_time() - started < 2


@pytest.mark.parametrize(
    "pattern",
    [
        "(",
        "[z-a]",
        r"(?=a)",
        r"(a)\1",
        "(?P<n>",
        "a{2000}",
        "(((a{100}){100}){100})",
        "\ud800",
        "x" * (MAX_PATTERN_CHARS + 1),
    ],
)
def test_an_invalid_expression_is_refused(pattern: str) -> None:
    with pytest.raises(Invalid) as refused:
        Pattern(pattern)

    assert "regular expression" in refused.value.detail
