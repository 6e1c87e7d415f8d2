"""Names of tenants, projects and users."""

import pytest

from ingress.auth.callers import is_scope_name, is_user_name


@pytest.mark.parametrize("name", ["default", "a", "A-1_b.c", "x" * 64])
def test_scope_names_are_short_plain_words(name: str) -> None:
    assert is_scope_name(name)


@pytest.mark.parametrize("name", ["dev", "ann@example.org", "auth0|12", "a~b", "x" * 128])
def test_user_names_may_look_like_subjects_and_addresses(name: str) -> None:
    assert is_user_name(name)


@pytest.mark.parametrize(
    "name",
    [
        "",
        "x" * 129,
        "a:b",
        "a{b}",
        "a b",
        "a\n",
        "a\x00",
        "../x",
        "a/b",
        "a\\b",
        "*",
        "a%",
        "\u0661",
        "\u202ea",
        "é",
        ".a",
    ],
)
def test_what_could_change_a_key_or_a_path_is_no_name(name: str) -> None:
    assert not is_scope_name(name)
    assert not is_user_name(name)
