"""Lines, previews, context and limits of a search in one text."""

from itertools import count

from chat_proc.workspace.text_search import MAX_PREVIEW_CHARS, Match, Pattern, Searched, search_text, split_lines


def search(text: str, pattern: str, context_lines: int = 0, max_matches: int = 9, late_after: int = 10**9) -> Searched:
    looks = count()
    return search_text(
        text,
        Pattern(pattern),
        context_lines=context_lines,
        max_matches=max_matches,
        is_late=lambda: next(looks) >= late_after,
    )


def test_matches_have_their_line_and_the_lines_around() -> None:
    found = search("a\nb\nc\nd\n", "b|d", context_lines=1)

    assert found == Searched((Match(2, "b", ((1, "a"), (3, "c"))), Match(4, "d", ((3, "c"),))), 4)


def test_carriage_returns_are_no_part_of_a_line() -> None:
    assert search("a b\r\nc\r\n", "b$").matches == (Match(1, "a b"),)


def test_a_long_line_is_shown_around_its_match() -> None:
    line = "x" * 5_000 + "needle" + "y" * 5_000

    preview = search(line, "needle").matches[0].preview

    assert "needle" in preview
    assert len(preview) == MAX_PREVIEW_CHARS + 6


def test_additional_matches_are_reported() -> None:
    found = search("a\na\na\n", "a", max_matches=2)

    assert (len(found.matches), found.more, search("a\na\n", "a", max_matches=2).more) == (2, True, False)


def test_a_search_that_takes_too_long_ends_with_what_it_found() -> None:
    found = search("a\n" * 2_000, "a", max_matches=5_000, late_after=2)

    assert (len(found.matches), found.stopped) == (1_000, True)


def test_an_empty_text_has_no_lines() -> None:
    assert split_lines("") == []
    assert search("", "").matches == ()
