from hypothesis import given
from hypothesis import strategies as st

from chat_proc.memory.snippets import cut_chunks


def test_a_short_text_is_one_part() -> None:
    assert cut_chunks("  short  ", limit=9) == ["short"]
    assert cut_chunks(" \n ", limit=9) == []


def test_a_long_text_is_cut_at_paragraphs_lines_sentences_or_words() -> None:
    assert cut_chunks("aaaa aaaa\n\nbbbb bbbb", limit=9, max_chars=14) == ["aaaa aaaa", "bbbb bbbb"]
    assert cut_chunks("one two. three four", limit=9, max_chars=14) == ["one two.", "three four"]
    assert cut_chunks("x" * 25, limit=9, max_chars=10) == ["x" * 10, "x" * 10, "x" * 5]


@given(st.text(max_size=300), st.integers(min_value=1, max_value=30), st.integers(min_value=1, max_value=40))
def test_parts_are_bounded_and_only_blanks_get_lost(text: str, max_chars: int, limit: int) -> None:
    chunks = cut_chunks(text, limit=limit, max_chars=max_chars)

    assert len(chunks) <= limit
    assert all(0 < len(chunk) <= max_chars for chunk in chunks)
    whole = "".join(cut_chunks(text, limit=10_000, max_chars=max_chars))
    assert "".join(whole.split()) == "".join(text.split())
    assert "".join("".join(chunks).split()) == "".join(text.split())[: len("".join("".join(chunks).split()))]
