"""Rows of the source pool as JSON that stays valid however little room there is."""

import json

from hypothesis import given
from hypothesis import strategies as st

from chat_proc.tools.context.read import render_rows
from everturn.timeline.sources import Source


def row(sid: int, text: str) -> tuple[Source, str]:
    return Source(sid, f"Title {sid}", f"https://example.com/{sid}", text_chars=len(text)), text


def test_rows_that_fit_are_whole() -> None:
    text, whole = render_rows([row(1, "one"), row(3, "three")], 1000)

    assert whole
    assert json.loads(text) == [
        {"sid": 1, "title": "Title 1", "url": "https://example.com/1", "text": "one"},
        {"sid": 3, "title": "Title 3", "url": "https://example.com/3", "text": "three"},
    ]


def test_long_texts_share_the_budget_and_say_what_is_shown() -> None:
    text, whole = render_rows([row(1, "x" * 5000), row(2, "short"), row(3, "y" * 5000)], 2000)

    first, short, last = json.loads(text)
    assert not whole
    assert len(text) <= 2000
    assert short["text"] == "short"
    assert "text_shown" not in short
    assert abs(len(first["text"]) - len(last["text"])) < 600
    assert first["text_shown"] == f"[0-{len(first['text'])}]/5000"


def test_rows_without_room_are_left_out_from_the_end() -> None:
    text, whole = render_rows([row(sid, "text") for sid in range(1, 50)], 500)

    assert not whole
    assert [item["sid"] for item in json.loads(text)] == list(range(1, len(json.loads(text)) + 1))


@given(texts=st.lists(st.text(max_size=300), max_size=6), cap=st.integers(2, 1500))
def test_a_cut_array_is_valid_json_within_its_cap(texts: list[str], cap: int) -> None:
    rows = [row(sid, text) for sid, text in enumerate(texts, start=1)]

    text, whole = render_rows(rows, cap)

    shown = json.loads(text)
    assert len(text) <= cap
    assert whole == ([item["text"] for item in shown] == texts)
    assert all(source_text.startswith(item["text"]) for item, source_text in zip(shown, texts, strict=False))
