"""Known secrets are removed from the output of the process."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everturn.core.logging import Redactor, find_named_secrets, find_url_secrets

SECRET = 'p"ss/word\\1'
REDACTOR = Redactor([SECRET, "another-secret", "short", ""])


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (f"token {SECRET}!", "token [redacted]!"),
        ("https://u:p%22ss%2Fword%5C1@host", "https://u:[redacted]@host"),
        ('{"key": "p\\"ss/word\\\\1"}', '{"key": "[redacted]"}'),
        ("another-secretanother-secret", "[redacted][redacted]"),
        ("short words stay", "short words stay"),
    ],
)
def test_a_secret_is_hidden_however_it_is_spelt(text: str, shown: str) -> None:
    assert REDACTOR.redact(text) == shown


def test_values_are_gone_through_whole() -> None:
    value = {"a": ["another-secret", 1, None], "another-secret": (b"x another-secret",), "b": {"c": True}}

    assert REDACTOR.redact_value(value) == {
        "a": ["[redacted]", 1, None],
        "[redacted]": [b"x [redacted]"],
        "b": {"c": True},
    }


def test_numbers_are_searched_as_they_are_written() -> None:
    value = {"customer": 90210112345, "amount": 9.5, "other": 9021, "is_new": True}

    assert Redactor(["90210112345"]).redact_value([value, value]) == [{**value, "customer": "[redacted]"}] * 2


def test_lines_of_a_secret_are_hidden_unless_they_are_ordinary_text() -> None:
    key = "-----BEGIN PRIVATE KEY-----\nMIIEvQIB\nADANBg\n-----END PRIVATE KEY-----"
    settings = "host: db\npassword: a long phrase\nmode: live"
    redactor = Redactor([f"{key}\n", settings])

    assert redactor.redact(key) == redactor.redact(settings) == "[redacted]"
    assert redactor.redact("MIIEvQIB, password: a long phrase") == "[redacted], [redacted]"
    for text in ("-----BEGIN PRIVATE KEY-----", "host: db, mode: live", "ADANBg"):
        assert redactor.redact(text) == text


def test_names_that_are_kept_are_kept_at_any_depth() -> None:
    value = [{"another-secret": {"another-secret": "another-secret"}}]

    assert REDACTOR.redact_value(value, kept_keys={"another-secret"}) == [
        {"another-secret": {"another-secret": "[redacted]"}}
    ]


def test_values_nested_too_deep_are_hidden_as_a_whole() -> None:
    deep: object = "another-secret"
    for _ in range(200):
        deep = [deep]

    assert "another-secret" not in str(REDACTOR.redact_value(deep))


@given(st.text(), st.text())
def test_no_text_shows_a_secret(before: str, after: str) -> None:
    assert "another-secret" not in REDACTOR.redact(f"{before}another-secret{after}")


@given(st.text())
def test_without_secrets_texts_stay(text: str) -> None:
    assert Redactor().redact(text) == text


def test_passwords_are_found_in_addresses_and_secrets_by_their_names() -> None:
    urls = ["postgresql://role:p%40ss@host/db", "redis://:secret@host:6379/0", "file:///folder", ""]

    assert find_url_secrets(urls) == ["p@ss", "secret"]
    environment = {"OPENAI_API_KEY": "sk", "PATH": "/bin", "HF_TOKEN": "hf", "AWS_BEARER_TOKEN_BEDROCK": "aws"}

    assert find_named_secrets(environment) == ["sk", "hf", "aws"]
