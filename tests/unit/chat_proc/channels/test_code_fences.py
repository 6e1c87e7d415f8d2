import pytest
from hypothesis import given
from hypothesis import strategies as st

from chat_proc.channels.markdown_code import FenceTracker


def inside(text: str, size: int = 1_000_000) -> bool:
    tracker = FenceTracker()
    for start in range(0, len(text), size):
        tracker.advance(text[start : start + size])
    return tracker.inside


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
        "```\n" + " " * 70 + "```\n",
        "~~~ `info`\n",
    ],
)
def test_text_after_an_opening_fence_is_code(text: str) -> None:
    assert inside(text)


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
        "**bold** ```\n",
        "1```\n",
        " " * 70 + "```\n",
    ],
)
def test_other_text_is_not_code(text: str) -> None:
    assert not inside(text)


@given(st.text(alphabet="`~ \n-*>1.)x", max_size=90), st.integers(1, 9))
def test_every_cut_leads_to_the_same_state(text: str, size: int) -> None:
    assert inside(text, size) == inside(text)


def test_a_backtick_late_in_the_line_undoes_the_fence_in_pieces_too() -> None:
    assert not inside("```]`", 1)
    assert not inside("```]`\n", 1)
