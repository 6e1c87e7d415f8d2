"""Content codings as in RFC 9110."""

import pytest

from ingress.web import try_choose_coding


@pytest.mark.parametrize(
    ("accepted", "chosen"),
    [
        ("gzip, deflate, br, zstd", "br"),
        ("gzip", "gzip"),
        ("GZIP;q=0.5", "gzip"),
        ("br;q=0, gzip", "gzip"),
        ("br; q=0.0, gzip;q=0", None),
        ("*", "br"),
        ("*;q=0", None),
        ("*, br;q=0", "gzip"),
        ("br;q=much", None),
        ("identity", None),
        ("", None),
        (",,;q=1", None),
    ],
)
def test_the_best_coding_that_the_client_accepts_is_chosen(accepted: str, chosen: str | None) -> None:
    assert try_choose_coding(accepted, ("br", "gzip")) == chosen


def test_nothing_is_chosen_where_nothing_is_offered() -> None:
    assert try_choose_coding("br, gzip", ()) is None
