"""Previews of long texts: their size, their shape, their beginning and the way to the rest."""

import json

from hypothesis import given
from hypothesis import strategies as st

from everturn.timeline.rendering import MAX_SHAPE_CHARS, SHAPE_ITEMS, build_preview, drop_base64, try_shape

REF = "tc:turn_1.call_1.result"


def test_a_text_within_the_cap_is_shown_as_it_is() -> None:
    assert build_preview("short", REF, 5) == "short"


def test_a_preview_has_the_beginning_the_size_and_the_next_read() -> None:
    preview = build_preview("line\n" * 100, REF, 50)

    assert preview.startswith("line\n" * 10)
    assert preview.endswith(
        f'(the first 50 of 500 characters, 100 lines; more: react.read items=[{{"path": "{REF}", "offset": 50}}])'
    )


def test_a_large_result_is_shown_with_its_shape() -> None:
    rows = [{"name": "Ann", "tags": ["a"], "age": n, "gone": None, "ok": True} for n in range(500)]

    preview = build_preview(json.dumps({"rows": rows}), REF, 2_000)

    assert preview.partition("shape:\n")[2].split("\n") == [
        "object of 1 keys",
        '  "rows": list of 500',
        "    [0]: object of 5 keys",
        '      "name": string of 3 characters',
        '      "tags": list of 1',
        '      "age": number',
        '      "gone": null',
        '      "ok": boolean',
    ]


def test_a_shape_is_bounded_in_depth_and_width() -> None:
    deep: object = 1
    for _ in range(50):
        deep = {"a": deep}
    wide = {f"key {n}" * 30: n for n in range(100)}

    assert try_shape(json.dumps(deep)) == "object of 1 keys\n" + "\n".join(
        f'{"  " * n}"a": object of 1 keys' for n in (1, 2, 3)
    )
    shape = try_shape(json.dumps(wide))
    assert shape is not None
    assert shape.endswith(f"and {100 - SHAPE_ITEMS} more keys")


def test_a_text_that_is_not_json_has_no_shape() -> None:
    texts = ["plain", "[not json", "12", '"text"', "[" * 100_000]

    assert [try_shape(text) for text in texts] == [None] * 5


@given(text=st.text(max_size=400), cap=st.integers(1, 300))
def test_a_preview_never_grows_much_beyond_its_cap(text: str, cap: int) -> None:
    preview = build_preview(text, REF, cap)

    assert len(preview) <= cap + MAX_SHAPE_CHARS + 200
    assert preview[: cap // 4] == text[: cap // 4]


def test_long_runs_of_base64_are_replaced_by_their_size() -> None:
    text = "before " + "QUJD" * 1000 + "== after, a hash " + "ab" * 32

    assert drop_base64(text) == "before <4002 characters of base64> after, a hash " + "ab" * 32
