"""Markdown that streams to a terminal: readable while it arrives, complete, and independent of the pieces."""

import re
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everturn_client.terminal.markdown import MAX_BLOCK_CHARS, MarkdownWriter

TEXT = """# A title

Line one<br>line two and `code` and **bold words that go on over the end of a line** until the line has
wrapped twice, with a [link](https://example.org/a_b_c), <https://auto.example> and List<String>.

| a | b |
|---|---:|
| one<br>two | `three` |

Math \\( a^2 * b * c \\) and $$x_1*y_2*z$$, but $5 and *maybe* $6.

$$
a &= b \\\\
- c &= d
$$

- [x] done
- a **long item** that goes on and on until it wraps around the end of its line
  - nested

    ```sh
    echo hi
    ```
- last

1. one
2. two

> quoted
> text

```python
def f(x):
    return {'a': [1, 2]}\t# tab

print('hi')
```

~~gone~~ \\*no\\* 5 * 3 snake_case_word [1]

[1]: http://example.org

---

Setext
======
The end <div>html</div>
"""


LAID_OUT = """A title

Line one
line two and code and bold words that go
on over the end of a line until the line
has wrapped twice, with a link
(https://example.org/a_b_c),
https://auto.example and List<String>.

 a        b
 ──────────
 one  three
 two

Math \\( a^2 * b * c \\) and
$$x_1*y_2*z$$, but $5 and maybe $6.

$$
a &= b \\\\
- c &= d
$$

 • [x] done
 • a long item that goes on and on until
   it wraps around the end of its line
    • nested

       echo hi
 • last

 1 one
 2 two

▌ quoted text

```python
def f(x):
    return {'a': [1, 2]}\t# tab

print('hi')
```

gone *no* 5 * 3 snake_case_word [1]

[1]: http://example.org

----------------------------------------

Setext
The end <div>html</div>
"""


def lay_out(*pieces: str, columns: int = 40, colour: bool = False) -> str:
    written: list[str] = []
    writer = MarkdownWriter(written.append, find_columns=lambda: columns, colour=colour)
    writer.begin()
    for piece in pieces:
        writer.feed(piece)
    writer.end()
    return "".join(written)


def test_a_text_of_all_kinds_is_laid_out() -> None:
    assert lay_out(TEXT) == LAID_OUT


@given(st.lists(st.integers(1, len(TEXT) - 1), max_size=60, unique=True))
def test_the_result_does_not_depend_on_the_pieces(cuts: list[int]) -> None:
    places = [0, *sorted(cuts), len(TEXT)]

    assert lay_out(*(TEXT[begin:end] for begin, end in pairwise(places))) == lay_out(TEXT)


@given(st.text(alphabet="ab *_`~[](){}<>|#-=>1.)\\$!&;:\n\t", max_size=300), st.integers(1, 20))
def test_no_letter_of_any_text_gets_lost(text: str, step: int) -> None:
    shown = lay_out(*(text[at : at + step] for at in range(0, len(text), step)))

    missing = [each for each in "ab" if shown.count(each) < text.count(each)]
    # The language of code and the entity of a sign are not shown as letters.
    assert not missing or re.search(r"[`~]{3}|&|\]\(", text)


def test_a_long_paragraph_is_shown_line_by_line_while_it_comes() -> None:
    written: list[str] = []
    writer = MarkdownWriter(written.append, find_columns=lambda: 20, colour=False)
    writer.begin()

    seen: list[str] = []
    for word in re.findall(r"\w+ ", "one two three four five six seven eight nine ten eleven twelve thirteen "):
        writer.feed(word)
        seen.append("".join(written))

    assert seen[3] == ""
    assert seen[8] == "one two three four\n"
    assert seen[-1].startswith("one two three four\nfive six seven eight\n")


def test_code_is_shown_line_by_line_and_stays_code_behind_an_interruption() -> None:
    written: list[str] = []
    writer = MarkdownWriter(written.append, find_columns=lambda: 40, colour=False)
    writer.begin()

    writer.feed("```\na = 1\nb")
    shown = "".join(written)
    writer.end()
    writer.feed("c\n# no heading\n```\n\nThe *end*.")
    writer.end()

    assert shown == "```\na = 1\n"
    assert "".join(written) == "```\na = 1\nb\nc\n# no heading\n```\n\nThe end.\n"


def test_a_new_text_is_not_part_of_code_that_was_left_open() -> None:
    written: list[str] = []
    writer = MarkdownWriter(written.append, find_columns=lambda: 40, colour=False)
    for text in ("```\na = 1", "It is **so**."):
        writer.begin()
        writer.feed(text)
    writer.end()

    assert "".join(written) == "```\na = 1\nIt is so.\n"


def test_a_word_wider_than_its_column_is_wrapped_and_not_cut() -> None:
    shown = lay_out(f"| a |\n|---|\n| {'x' * 100} |\n")

    assert shown.count("x") == 100


def test_a_table_is_shown_when_it_is_complete() -> None:
    written: list[str] = []
    writer = MarkdownWriter(written.append, find_columns=lambda: 40, colour=False)
    writer.begin()

    writer.feed("| a | b |\n|---|---|\n| 1 | 2 |\n")
    before = list(written)
    writer.feed("\n")

    assert before == []
    assert "1" in "".join(written)


@pytest.mark.parametrize("text", ["*a_ " * 3_000, ">" * 10_000 + "a", "[" * 10_000 + "a", "a\n" * 5_000, "a" * 9_000])
def test_a_block_that_is_too_long_is_shown_whole_as_several(text: str) -> None:
    shown = lay_out(*(text[at : at + 500] for at in range(0, len(text), 500)))

    assert len(text) > 2 * MAX_BLOCK_CHARS
    assert shown.count("a") == text.count("a")


def test_colours_are_there_only_where_they_are_wanted() -> None:
    text = "**a** `b`\n\n```python\nprint(1)\n```\n"

    assert "\x1b[1ma\x1b[0m" in lay_out(text, colour=True)
    assert "\x1b" not in lay_out(text)
