"""Cursors of lists."""

import base64

import pytest

from everturn.core.paging import BadCursor, build_cursor, read_cursor, read_moment


def test_a_cursor_reads_back_its_parts() -> None:
    cursor = build_cursor("list", "2026-03-01T12:00:00+00:00", "conv_ü\n")

    assert read_cursor(cursor, "list", parts=2) == ("2026-03-01T12:00:00+00:00", "conv_ü\n")
    assert cursor.replace("-", "").replace("_", "").isalnum()


def encoded(text: str) -> str:
    return base64.urlsafe_b64encode(text.encode()).decode()


@pytest.mark.parametrize(
    "cursor",
    [
        "",
        "x",
        "é",
        "a\x00",
        "a" * 2_000,
        encoded("[" * 400),
        encoded('{"kind": "list"}'),
        encoded("[]"),
        encoded("7"),
        build_cursor("list"),
        build_cursor("list", "1", "2"),
        build_cursor("other", "1"),
        encoded('["list", 7]'),
    ],
)
def test_anything_else_is_refused(cursor: str) -> None:
    with pytest.raises(BadCursor):
        read_cursor(cursor, "list", parts=1)


@pytest.mark.parametrize("text", ["", "x", "2026-03-01", "2026-03-01T12:00:00", "0001-01-01T00:00:00+00:00"])
def test_a_moment_has_a_zone_and_a_year_of_ours(text: str) -> None:
    with pytest.raises(BadCursor):
        read_moment(text)
