"""How a browser may treat a file."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingress.attachments.sniffing import clean_name
from ingress.files.service import build_disposition, content_type


@pytest.mark.parametrize(
    "mime", ["text/html", "image/svg+xml", "application/xml", "text/javascript", "text/csv", "x/y"]
)
def test_types_that_could_run_are_downloads(mime: str) -> None:
    assert build_disposition("a", mime, download=False).startswith("attachment;")


def test_harmless_types_are_shown_unless_a_download_is_requested() -> None:
    assert build_disposition("a.png", "image/png", download=False) == 'inline; filename="a.png"'
    assert build_disposition("a.png", "image/png", download=True).startswith("attachment;")


def test_a_name_beyond_ascii_is_sent_in_both_forms() -> None:
    value = build_disposition('grü"ße 1%.csv', "text/csv", download=False)

    assert value == "attachment; filename=\"gr__ _e 1_.csv\"; filename*=UTF-8''gr%C3%BC%22%C3%9Fe%201%25.csv".replace(
        "gr__ _e", "gr___e"
    )


@given(st.text())
def test_the_header_is_one_line_of_ascii(raw: str) -> None:
    value = build_disposition(clean_name(raw), "text/plain", download=False)

    assert value.isascii()
    assert value.isprintable()
    assert value.count('"') == 2


def test_text_says_its_encoding() -> None:
    assert content_type("text/csv") == "text/csv; charset=utf-8"
    assert content_type("image/png") == "image/png"
