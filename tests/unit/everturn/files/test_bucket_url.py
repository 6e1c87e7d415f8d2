"""The URL of a bucket: its options, and that a secret in it is rejected and not shown."""

import pytest

from everturn.core.errors import Invalid
from everturn.files.s3 import S3Place, parse_s3_url


def test_a_url_names_bucket_prefix_and_how_to_reach_it() -> None:
    url = "s3://files/a/b/?endpoint=http%3A%2F%2Fminio%3A9000&public=https://files.example.com&region=eu&timeout=5"

    place = parse_s3_url(url)

    assert place == S3Place("files", "a/b/", "http://minio:9000", "https://files.example.com", "eu", "path", 5.0)


def test_a_url_needs_only_a_bucket() -> None:
    assert parse_s3_url("s3://files") == S3Place("files", "", None, None, None, "virtual", 20.0)


def test_browsers_use_the_same_endpoint_unless_another_is_named() -> None:
    assert parse_s3_url("s3://files?endpoint=http://minio:9000&style=virtual").public == "http://minio:9000"


@pytest.mark.parametrize(
    "url",
    [
        "s3://",
        "s3:///prefix",
        "s3://files:80/x",
        "s3://files/../x",
        "s3://files/a//b",
        "s3://files?region",
        "s3://files?region=a&region=b",
        "s3://files?secret=x",
        "s3://files?style=other",
        "s3://files?timeout=0",
        "s3://files?timeout=nan",
        "s3://files?timeout=x",
        "s3://files?endpoint=ftp://x",
        "s3://files?endpoint=x",
        "s3://files?endpoint=http://x?y",
        "s3://files#x",
    ],
)
def test_another_form_is_refused(url: str) -> None:
    with pytest.raises(Invalid):
        parse_s3_url(url)


@pytest.mark.parametrize(
    "url", ["s3://key:hidden-word@files", "s3://files?endpoint=http://key:hidden-word@host", "s3://files?a=hidden-word"]
)
def test_a_secret_is_refused_and_not_shown(url: str) -> None:
    with pytest.raises(Invalid) as refusal:
        parse_s3_url(url)

    assert "hidden-word" not in str(refusal.value)
