"""Arguments of a read: what is wrong with a number is said, and spoils its own path only."""

import pytest
from pydantic import ValidationError

from chat_proc.attachments.excerpt import Range
from chat_proc.tools.context.read import DEFAULT_CHARS, MAX_CHARS, ReadItem, ReadParams
from everturn.core.errors import Invalid


def test_paths_and_items_are_read_once_each_in_their_order() -> None:
    params = ReadParams.model_validate({"paths": ["a", "b", "a"], "items": [{"path": "a", "offset": 5}, "b"]})

    assert [(item.path, item.offset) for item in params.wanted()] == [("a", None), ("b", None), ("a", 5)]


def test_an_item_names_a_range() -> None:
    item = ReadItem.model_validate({"path": "a", "line_start": 3, "line_count": 2, "max_text_symbols": 100})

    assert item.read_range() == Range(line_start=3, line_count=2)
    assert item.read_cap() == 100


def test_a_path_is_shown_up_to_a_default_and_never_above_the_most() -> None:
    assert ReadItem(path="a").read_cap() == DEFAULT_CHARS
    assert ReadItem(path="a", max_text_symbols=10**9).read_cap() == MAX_CHARS


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("line_start", 0),
        ("line_start", -3),
        ("line_start", "12"),
        ("line_count", 0),
        ("line_count", 1.5),
        ("offset", -1),
        ("offset", "start"),
        ("offset", True),
    ],
)
def test_zero_negative_and_text_numbers_give_a_clear_notice(field: str, value: object) -> None:
    item = ReadItem.model_validate({"path": "a", field: value})

    with pytest.raises(Invalid, match=f"{field} must be an integer of at least [01], not"):
        item.read_range()


def test_a_cap_of_nothing_gives_a_clear_notice() -> None:
    with pytest.raises(Invalid, match="max_text_symbols must be an integer of at least 1"):
        ReadItem(path="a", max_text_symbols=0).read_cap()


@pytest.mark.parametrize(
    "params", [{}, {"paths": []}, {"paths": ["x"] * 21}, {"items": [{"path": ""}]}, {"paths": "ar:turn_1.user.prompt"}]
)
def test_a_read_of_nothing_or_of_too_much_is_refused(params: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        ReadParams.model_validate(params)


@pytest.mark.parametrize("path", ["", "x" * 2049])
@pytest.mark.parametrize("field", ["paths", "items"])
def test_an_empty_or_too_long_path_is_refused(field: str, path: str) -> None:
    with pytest.raises(ValidationError):
        ReadParams.model_validate({field: [path]})
