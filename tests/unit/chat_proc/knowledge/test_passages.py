"""Documents are cut at their headings, into passages that name exactly where they are."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chat_proc.knowledge.passages import find_broken_links, find_folders, split_document
from everturn.knowledge.store import MAX_PASSAGE_CHARS, Passage

GUIDE = """---
title: ignored
---
# Guide

An introduction that is long enough to be a passage of its own, because short ones are joined with the next one.

## Install on `Linux` ##

Run the installer, wait until it has finished, then check that the service answers on its port and writes its log.

```sh
# not a heading
```

## Empty

### Below

A text below two headings, one of which has none, which says enough about its subject to stand alone as a passage.
"""
LINES = st.text(st.sampled_from("ab #=-`.\u00e9\u4e2d"), max_size=40)


def cut(text: str, passage: Passage) -> str:
    return text[passage.start_char : passage.start_char + passage.chars]


def test_passages_are_under_their_headings() -> None:
    title, passages = split_document("docs/guide.md", GUIDE)

    assert title == "Guide"
    assert [(each.heading, each.start_line, each.end_line) for each in passages] == [
        ("Guide", 1, 6),
        ("Guide > Install on `Linux`", 8, 14),
        ("Guide > Empty > Below", 18, 20),
    ]


@pytest.mark.parametrize(
    ("origin", "text", "headings"),
    [
        ("a.rst", f"Title\n=====\n\n{'a ' * 60}\n\nPart\n----\n\n{'b ' * 60}", ["Title", "Title > Part"]),
        ("a.txt", f"{'a ' * 60}\n-- \n{'b ' * 60}", [""]),
        ("a.md", f"# One\n{'a ' * 60}\n# Two\n{'b ' * 60}", ["One", "Two"]),
        ("a.py", f"# One\n{'a ' * 60}\n# Two\n{'b ' * 60}", [""]),
        ("a.md", f"| a | b |\n|---|---|\n| {'c ' * 60} |", [""]),
        ("a.md", "", []),
    ],
)
def test_headings_are_those_of_the_kind_of_document(origin: str, text: str, headings: list[str]) -> None:
    _, passages = split_document(origin, text)

    assert [each.heading for each in passages] == headings


def test_short_sections_are_joined_with_the_next() -> None:
    _, passages = split_document("faq.md", "# Why\nBecause.\n# When\nNow.\n# Where\nHere.\n")

    assert [(each.heading, each.start_line, each.end_line) for each in passages] == [("Why", 1, 6)]


def test_a_long_section_is_cut_at_an_empty_line() -> None:
    text = "\n".join(["word " * 30] * 5 + [""] + ["more " * 30] * 5)

    _, (first, second) = split_document("a.md", text)

    assert (first.start_line, first.end_line, second.start_line, second.end_line) == (1, 5, 7, 11)


@given(lines=st.lists(LINES, max_size=60), repeat=st.integers(1, 30))
def test_any_text_is_cut_into_passages_that_lose_no_text(lines: list[str], repeat: int) -> None:
    text = "\n".join(line * repeat for line in lines)

    _, passages = split_document("a.txt", text)

    assert all(0 < each.chars <= MAX_PASSAGE_CHARS for each in passages)
    for each in passages:
        assert text.count("\n", 0, each.start_char) + 1 == each.start_line
        assert each.start_line + cut(text, each).count("\n") == each.end_line
    places = [place for each in passages for place in range(each.start_char, each.start_char + each.chars)]
    assert len(places) == len(set(places))


def test_a_hostile_document_has_a_bounded_number_of_passages() -> None:
    for text in ("# a\nx\n" * 170_000, "x\n" * 500_000, "word " * 200_000):
        assert len(split_document("a.md", text[: 1024 * 1024])[1]) < 2_500


def test_relative_links_that_lead_nowhere_are_found() -> None:
    names = {"docs/a.md", "docs/img/b.png", "src/c.py"}
    known = names | find_folders(names)
    text = "\n".join(
        [
            "[ok](img/b.png) [up](../src/c.py#L3) [root](/docs/a.md) [folder](img/) [self](#part) [dot](.)",
            "[web](https://example.org/x) [mail](mailto:a@example.org) [elsewhere](../other/x.md)",
            "```",
            "[in code](none.md)",
            "```",
            "[gone](img/c%20d.png) [out](../../x.md)",
            "",
            "[named]: missing.md",
        ]
    )

    found = list(find_broken_links("docs/a.md", text, known, {"docs": "docs", "src": "src"}))

    assert found == ["docs/a.md:6: img/c%20d.png", "docs/a.md:6: ../../x.md", "docs/a.md:8: missing.md"]
    assert list(find_broken_links("docs/a.py", text, known, {"": ""})) == []
