"""What a model thinks in tags is separated from its reply, however the reply is cut into pieces."""

from collections.abc import AsyncGenerator, Callable

import pytest
from helpers.linear_cost import check_linear, repeat
from hypothesis import given
from hypothesis import strategies as st

from chat_proc.models.think_tags import ThinkTagReader, drop_reasoning, split_thinking
from everturn.models.port import ModelFailed, ModelPiece, ReasoningDelta, TextDelta

PARTS = ("<think>", "</think>", "</THINKING>", "<b>", "<", "`", "```", "a ```x\n", "\n```\n", "a" * 600, " ", "\n")


def read(*texts: str) -> tuple[str, str]:
    """What the model thought, and its reply."""
    reader = ThinkTagReader()
    pieces = [piece for text in texts for piece in reader.feed(text)] + reader.finish()
    thought = "".join(piece.text for piece in pieces if isinstance(piece, ReasoningDelta))
    return thought, "".join(piece.text for piece in pieces if isinstance(piece, TextDelta))


@pytest.mark.parametrize(
    ("text", "thought", "reply"),
    [
        ("<think>Two and two.</think>\n\nIt is 4.", "Two and two.", "It is 4."),
        (" <Thinking>\nTwo and two.\n</Thinking>It is 4.", "Two and two.", "It is 4."),
        ("<think>It ends with `</think>`.</think>It is 4.", "It ends with `</think>`.", "It is 4."),
        ("<think>In `x </think>`, it ends.</think>It is 4.", "In `x </think>`, it ends.", "It is 4."),
        ("<think>So:\n```\n</think>\nx\n```\nY.</think>It is 4.", "So:\n```\n</think>\nx\n```\nY.", "It is 4."),
        ("<think>So:\n```\nx\n</think>It is 4.", "So:\n```\nx", "It is 4."),
        ("<think>So:\n```\nx\n</think>\n```\nIt is 4.", "So:\n```\nx", "```\nIt is 4."),
        ("<think>A `b</think>It is 4.", "A `b", "It is 4."),
        ("<think>" + "So. " * 3_000 + "</think>It is `</think>`.", "So. " * 2_999 + "So.", "It is `</think>`."),
        *(
            (f"<think>{code}{'So. ' * 900}</think>It is 4.", f"{code}{'So. ' * 899}So.", "It is 4.")
            for code in ("Is it `</think>`? ", "As in:\n```\nx</think>\n```\n", "As in: ```xml\nx</think>\n```\n")
        ),
        ("<think>I reply in ```json\nas asked.</think>It is 4.", "I reply in ```json\nas asked.", "It is 4."),
        ("<think>Two and", "Two and", ""),
        ("<think>Two</thi", "Two</thi", ""),
        ("It is <think>4</think>.", "", "It is <think>4</think>."),
        ("<thin ice>", "", "<thin ice>"),
    ],
)
def test_a_reply_that_begins_with_a_tag_begins_with_thinking(text: str, thought: str, reply: str) -> None:
    assert read(text) == (thought, reply)
    assert read(*text) == (thought, reply)
    assert drop_reasoning(text) == (reply or text)


@pytest.mark.parametrize(
    "text",
    [
        'In Python:\n\n```python\nbody = text.split("</think>")[-1]\n```\nThat is all.',
        "```\nCut up to </think> here.\n```\nThat is all.",
        '{"answer": "Split at </think> to get the rest."}',
        "Models write `<think>...</think>` first, then\n~~~\na call</think>\n~~~\nand then the rest.",
    ],
)
def test_a_quoted_closing_tag_without_an_opening_one_is_text(text: str) -> None:
    assert drop_reasoning(text) == text


@given(st.lists(st.sampled_from(PARTS), max_size=8).map("".join), st.integers(1, 9))
def test_what_is_read_does_not_depend_on_the_pieces(text: str, size: int) -> None:
    assert read(*(text[at : at + size] for at in range(0, len(text), size))) == read(text)


def test_a_closing_tag_in_code_holds_the_reply_back_for_a_limited_time() -> None:
    reply = "It is 4. " * 150
    reader = ThinkTagReader()
    reader.feed("<think>So:\n```\nx\n</think>")

    pieces = reader.feed(reply)

    assert "".join(piece.text for piece in pieces if isinstance(piece, TextDelta)) == reply
    assert read("<think>So:\n```\nx\n</think>", *reply, "</think>")[1] == reply + "</think>"


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("<think>So:\n```\nx\n</think>It is 4.", [ReasoningDelta("So:\n```\nx"), TextDelta("It is 4.")]),
        ("\n", []),
        ("<thi", []),
    ],
)
async def test_a_reply_that_fails_loses_nothing_that_has_begun(text: str, read: list[ModelPiece]) -> None:
    async def fail() -> AsyncGenerator[ModelPiece, None]:
        yield TextDelta(text)
        raise ModelFailed("cut")

    pieces: list[ModelPiece] = []
    with pytest.raises(ModelFailed):
        async for piece in split_thinking(fail()):
            pieces.append(piece)

    assert pieces == read


@pytest.mark.parametrize("blanks", [1, 256, 257, 600])
@pytest.mark.parametrize("text", ["@<think>Two.</think>It is 4.", "<think>Two.@</think>It is 4."])
def test_many_blanks_do_not_depend_on_the_pieces_either(text: str, blanks: int) -> None:
    written = text.replace("@", " " * blanks)

    assert read(*written) == read(written)


@pytest.mark.parametrize(
    "build",
    [
        repeat(" "),
        repeat("\n", before="<think>"),
        repeat("\n", before="<think>Two"),
        repeat(" ", before="<think>Two</think>"),
        repeat(" `", before="<think>Two"),
        repeat("<", before="<think>Two"),
        repeat("</think>`", before="<think>Two `"),
        repeat("</think>", before="<think>Two\n```\n"),
    ],
)
def test_thinking_is_read_in_linear_time(build: Callable[[int], str]) -> None:
    check_linear(lambda text: read(*text), build, chars=8_000)
