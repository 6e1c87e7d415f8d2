import json
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chat_proc.channels.json_text import FieldEnd, FieldPiece, FieldText, JsonFieldReader, Path


def read(
    text: str,
    *,
    watch: Callable[[Path], bool] = lambda path: len(path) == 1,
    size: int = 1_000_000,
    strings_only: bool = False,
) -> list[FieldPiece]:
    reader = JsonFieldReader(watch, strings_only=strings_only)
    pieces = [piece for start in range(0, len(text), size) for piece in reader.feed(text[start : start + size])]
    return pieces + reader.finish()


def values(pieces: list[FieldPiece]) -> dict[Path, str]:
    read_values: dict[Path, str] = {}
    for piece in pieces:
        if isinstance(piece, FieldText):
            read_values[piece.path] = read_values.get(piece.path, "") + piece.text
    return read_values


def ends(pieces: list[FieldPiece]) -> list[tuple[Path, bool]]:
    return [(piece.path, piece.complete) for piece in pieces if isinstance(piece, FieldEnd)]


def test_a_growing_string_is_returned_decoded() -> None:
    reader = JsonFieldReader(lambda path: path == ("a",))

    assert reader.feed('{"b": "no", "a": "x\\') == [FieldText(("a",), "x")]
    assert reader.feed('ny"') == [FieldText(("a",), "\ny"), FieldEnd(("a",), complete=True)]


def test_paths_name_keys_and_places_in_lists() -> None:
    pieces = read('{"a": {"b": ["x", {"c": "y"}]}}', watch=lambda _path: True, strings_only=True)

    assert values(pieces) == {("a", "b", 0): "x", ("a", "b", 1, "c"): "y"}


def test_values_other_than_strings_are_returned_as_json() -> None:
    text = '{"a": {"b": [1, "}"], "c": "\\n"}, "d": 1.5, "e": [ ], "f": null}'

    pieces = read(text)

    handed = {key: json.loads(written) for (key,), written in values(pieces).items()}
    assert handed == json.loads(text)
    assert ends(pieces) == [(("a",), True), (("d",), True), (("e",), True), (("f",), True)]


def test_a_duplicate_field_is_returned_once() -> None:
    assert values(read('{"a": "x", "a": "y"}')) == {("a",): "x"}


def test_a_field_that_breaks_off_ends_incomplete() -> None:
    assert ends(read('{"a": "x')) == [(("a",), False)]
    assert ends(read('{"a": "x\\q"}')) == [(("a",), False)]


@pytest.mark.parametrize(
    "text",
    ['{"a": "He said "hi", "b": "x"}', '{a: "x", "b": "x"}', 'well {"b": "x"}', '{"a" "b": "x"}', '{"a": ], "b": "x"}'],
)
def test_nothing_is_returned_after_the_first_error(text: str) -> None:
    assert ("b",) not in values(read(text))


def test_a_code_fence_before_the_object_is_skipped() -> None:
    assert values(read('```json\n{"a": "x"}\n```\n{"b": "y"}', size=3)) == {("a",): "x"}


def test_too_deep_values_are_not_returned() -> None:
    assert values(read('{"a": ' + "[" * 1_000 + '], "b": "x"')).keys() == {("a",)}


@given(
    st.dictionaries(
        st.text(st.characters(exclude_characters="\x00", exclude_categories=["Cs"])),
        st.recursive(
            st.text(st.characters(exclude_characters="\x00", exclude_categories=["Cs"])) | st.integers() | st.none(),
            lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
            max_leaves=8,
        ),
    ),
    st.integers(1, 12),
    st.sampled_from([None, 1]),
)
def test_every_cut_of_every_object_gives_its_values(fields: dict[str, object], size: int, indent: int | None) -> None:
    text = json.dumps(fields, indent=indent)

    pieces = read(text, size=size)

    handed = values(pieces)
    for key, value in fields.items():
        written = handed.get((key,), "")
        assert (written if isinstance(value, str) else json.loads(written)) == value
    assert ends(pieces) == [((key,), True) for key in fields]


@given(st.text(alphabet='{}[]",:\\ `\n1au', max_size=80), st.integers(1, 5))
def test_no_text_raises_and_no_cut_matters(text: str, size: int) -> None:
    pieces = read(text, size=size)

    assert values(pieces) == values(read(text))
    assert ends(pieces) == ends(read(text))


@pytest.mark.parametrize("unit", ["x", "\\n", "\\ud83d", '", "b": "', " "])
@pytest.mark.parametrize("size", [1, 7])
def test_work_grows_in_step_with_the_input(
    unit: str, size: int, count_characters: Callable[[Callable[[], object]], int]
) -> None:
    text = '{"a": "' + unit * 800

    handled = count_characters(lambda: read(text, size=size, watch=lambda path: path == ("a",)))

    assert handled < 60 * len(text)
