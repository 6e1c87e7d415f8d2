"""Code in Markdown is found in the same places however the text is cut, and in linear time."""

from collections.abc import Callable, Sequence

import pytest
from helpers.linear_cost import check_linear, repeat
from hypothesis import given
from hypothesis import strategies as st

from chat_proc.models.markdown_code import MAX_INLINE_CHARS, MAX_SHOWN_LATE_CHARS, CodeSplitter, Span, split_code


def split(text: str, size: int, limit: int = MAX_SHOWN_LATE_CHARS) -> Sequence[Span]:
    splitter = CodeSplitter(limit)
    spans = [span for start in range(0, len(text), size) for span in splitter.feed(text[start : start + size])]
    return [*spans, *splitter.finish()]


def kinds(spans: Sequence[Span]) -> list[tuple[str, str]]:
    return [(char, span.kind) for span in spans for char in span.text]


@pytest.mark.parametrize(
    "text",
    [
        "```\n",
        "```python",
        "text\n~~~\ncode",
        "````\n```\n",
        "```\n~~~\n",
        "- ```py\n  x",
        "> ```\n> x",
        "   ```\nx ```\n",
        "```\n" + " " * 260 + "```\n",
        "~~~ `info`\n",
        "- [ ] ```\n",
        "* 1. - [x]  ~~~\n",
        "• ```\n",
        "As in: ```xml\nx\n```\n```\n",
        "As in: ```xml\n~~~\n",
    ],
)
def test_text_after_an_opening_fence_is_code(text: str) -> None:
    assert split_code(f"{text}\nx")[-1].kind == "fence"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "text ```",
        "```\nx\n```\n",
        "```\nx\n`````  \nmore",
        "~~~\n```\n~~~\n",
        "```inline```",
        "```a` b\n",
        "``\n",
        "**bold** ``` is it\n",
        "y = 2```\n",
        "[ ] ```\n",
        " " * 70 + "```\n",
        "As in: ```xml\n",
        "As in: ```xml\nx\n```\n",
        "As in: ````xml\nx\n```\ny\n````\n",
        "As in: ```xml\nx\n```py\ny\n```\n",
        "As in: ```xml\n" + "x" * MAX_INLINE_CHARS + "\n```\n",
        "1```\n",
        "```]`",
    ],
)
def test_other_text_is_not_code(text: str) -> None:
    assert split_code(f"{text}\nx")[-1].kind == "text"


@pytest.mark.parametrize("begin", ["As in: ```xml", "- Or `so`: ```xml", "> As in: ```c++ \r"])
@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("x\n```\nEnd.", "x\n```"),
        ("\nx\n  ``` \r\nEnd.", "\nx\n  ``` \r"),
        ("`x\n```\nEnd.", "`x\n```"),
        ("````", "````"),
        ("x" * (MAX_INLINE_CHARS - 4) + "\n```", "x" * (MAX_INLINE_CHARS - 4) + "\n```"),
        ("x" * (MAX_INLINE_CHARS - 3) + "\n```", ""),
        ("as asked.", ""),
        ("x\n```py\ny\n```", "```py\ny\n```"),
        ("x\n``", ""),
        ("x\n```y", "```y"),
    ],
)
def test_a_fence_behind_text_is_code_only_with_its_closing_line(begin: str, text: str, code: str) -> None:
    assert "".join(span.text for span in split_code(f"{begin}\n{text}") if span.kind == "fence") == code


@pytest.mark.parametrize(
    "text, code",
    [
        ("a `b` c", ["`b`"]),
        ("``a ` b`` and `c`", ["``a ` b``", "`c`"]),
        ("`a ``b`` c", ["``b``"]),
        ("one ` only", []),
        ("`not\nover lines`", []),
        ("`" + "x" * (MAX_INLINE_CHARS - 2) + "`", ["`" + "x" * (MAX_INLINE_CHARS - 2) + "`"]),
        ("`" + "x" * (MAX_INLINE_CHARS - 1) + "`", []),
    ],
)
def test_inline_code_ends_at_the_next_run_of_its_length(text: str, code: list[str]) -> None:
    assert [span.text for span in split_code(text) if span.kind == "inline"] == code


def test_a_backtick_at_the_end_of_a_piece_may_be_part_of_a_longer_run() -> None:
    splitter = CodeSplitter()

    assert splitter.feed("a `b`") == [Span("a ", "text")] and splitter.in_code
    assert splitter.feed("", ends_run=True) == [Span("`b`", "inline")] and not splitter.in_code


LONG = ("`" * 70, "`" * 300, " " * 70, "x" * 130, "\n```" + "x" * 250, "\n```" + " " * 250)
PARTS = st.one_of(
    st.text("`~ \n\r-•[]x1.>", min_size=1, max_size=6),
    st.sampled_from((*LONG, "- [ ] ", "```x\n", "\n```\n", "x" * 8_180)),
)


@given(
    st.lists(PARTS, max_size=12).map("".join),
    st.integers(1, 300),
    st.sampled_from([MAX_SHOWN_LATE_CHARS, MAX_INLINE_CHARS]),
)
def test_spans_do_not_depend_on_the_pieces(text: str, size: int, limit: int) -> None:
    whole = split(text, max(1, len(text)), limit)

    assert kinds(split(text, size, limit)) == kinds(whole)
    assert "".join(span.text for span in whole) == text


@pytest.mark.parametrize("size", [1, 4_000])
@pytest.mark.parametrize(
    "build",
    [
        *(repeat("x ```y\n"), repeat("x ```y\nz\n```\n"), repeat("x ```y\n```z\n```\n"), repeat("```\n")),
        *(repeat("`"), repeat("` "), repeat("`\n"), repeat("` ``  ```"), repeat("~~~\n"), repeat("\n"), repeat("-")),
        repeat(" ".join("`" * length for length in range(1, 20))),
    ],
)
def test_code_is_found_in_linear_time(size: int, build: Callable[[int], str]) -> None:
    check_linear(lambda text: split(text, size), build)
