import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chat_proc.channels.json_text import decode_run
from everturn.core.storable import replace_unstorable


def decoded(body: str, size: int) -> tuple[str, bool]:
    """Decodes `body` (a string without its opening quote) in pieces, keeping what a run leaves over."""
    text, rest = "", ""
    for start in range(0, len(body), size):
        source = rest + body[start : start + size]
        run = decode_run(source, 0)
        text, rest = text + run.text, source[run.end :]
        if run.closed or run.broken:
            return text, run.closed
    return text, False


@given(st.text(), st.booleans(), st.integers(1, 20))
def test_a_string_cut_anywhere_decodes_to_the_same_text(text: str, escape_all: bool, size: int) -> None:
    body = json.dumps(text, ensure_ascii=escape_all)[1:]

    assert decoded(body, size) == (replace_unstorable(text), True)


@pytest.mark.parametrize("size", range(1, 14))
def test_a_surrogate_pair_cut_anywhere_is_one_character(size: int) -> None:
    assert decoded('a\\ud83d\\ude00b"', size) == ("a\U0001f600b", True)


@pytest.mark.parametrize("size", range(1, 14))
def test_half_a_pair_and_nul_become_the_replacement_character(size: int) -> None:
    assert decoded('\\ud83dx\\ude00\\u0000\\\\ud83d"', size) == ("\ufffdx\ufffd\ufffd\\ud83d", True)


@pytest.mark.parametrize("body", ["\\u12G4", "\\x41"])
def test_an_invalid_escape_breaks_the_string(body: str) -> None:
    assert decode_run(body + '"', 0).broken


def test_what_may_still_be_an_escape_is_left_over() -> None:
    run = decode_run("ab\\u00", 0)

    assert (run.text, run.end, run.closed) == ("ab", 2, False)


def test_raw_line_breaks_are_let_through() -> None:
    assert decoded('a\nb\\n"', 3) == ("a\nb\n", True)
