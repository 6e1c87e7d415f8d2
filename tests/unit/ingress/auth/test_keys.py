"""The form of API keys, and their secrets."""

import pytest

from ingress.auth.api_keys import build_key_text, is_secret_of, try_read_key_text


def test_a_made_key_is_read_back_and_shows_no_secret() -> None:
    text, made = build_key_text()

    read = try_read_key_text(text)

    assert read == made
    assert text.startswith(f"evk_{made.key_id}_")
    assert text.removeprefix(f"evk_{made.key_id}_") not in repr(made)
    assert build_key_text()[0] != text


def test_a_secret_is_compared_by_its_hash() -> None:
    (_, mine), (_, other) = build_key_text(), build_key_text()

    assert is_secret_of(mine, mine.secret_hash)
    assert not is_secret_of(mine, other.secret_hash)
    assert not is_secret_of(mine, None)


@pytest.mark.parametrize(
    "text",
    ["", "evk_", "evk_0123456789abcdef", "evk_0123456789abcdef_short", "evk_0123456789ABCDEF_" + "a" * 43,
     "evk_0123456789abcdef_" + "a" * 44, "evk_0123456789abcdef_" + "é" * 43, "evk_' OR 1=1 --_" + "a" * 43,
     " evk_0123456789abcdef_" + "a" * 43],
)  # fmt: skip
def test_what_has_another_form_is_no_key(text: str) -> None:
    assert try_read_key_text(text) is None
