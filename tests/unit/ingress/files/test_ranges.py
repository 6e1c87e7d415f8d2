"""Byte ranges."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingress.files.service import NotSatisfiable, Slice, try_read_range


@pytest.mark.parametrize(
    ("header", "wanted"),
    [
        ("bytes=0-0", Slice(0, 1)),
        ("bytes=2-4", Slice(2, 5)),
        ("bytes=2-", Slice(2, 10)),
        ("bytes=2-999", Slice(2, 10)),
        ("bytes=-3", Slice(7, 10)),
        ("bytes=-999", Slice(0, 10)),
        ("Bytes=1-1", Slice(1, 2)),
        (None, None),
        ("", None),
        ("bytes=", None),
        ("bytes=-", None),
        ("bytes=4-2", None),
        ("bytes=0-1,3-4", None),
        ("items=0-1", None),
        ("bytes=a-b", None),
        ("bytes=\u0661-", None),
        ("bytes=" + "9" * 30 + "-", None),
    ],
)
def test_one_range_is_read_and_all_else_means_the_whole_file(header: str | None, wanted: Slice | None) -> None:
    assert try_read_range(header, 10) == wanted


@pytest.mark.parametrize(
    ("header", "size"), [("bytes=10-", 10), ("bytes=-0", 10), ("bytes=0-", 0), ("bytes=99-100", 10)]
)
def test_a_range_outside_the_file_cannot_be_satisfied(header: str, size: int) -> None:
    with pytest.raises(NotSatisfiable):
        try_read_range(header, size)


@given(st.text(max_size=20), st.integers(0, 100))
def test_a_slice_is_never_outside_or_empty(text: str, size: int) -> None:
    try:
        piece = try_read_range(f"bytes={text}", size)
    except NotSatisfiable:
        return
    assert piece is None or 0 <= piece.start < piece.end <= size
