"""Artifacts: the rn of a file has one spelling."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everturn.core.errors import Invalid
from everturn.files.model import Rn, manifest_key, object_key, parse_rn, upload_key

NAMES = st.text(st.characters(codec="utf-8"), min_size=1, max_size=30)


@given(tenant=NAMES, user=NAMES)
def test_an_rn_comes_back_whatever_its_parts_hold(tenant: str, user: str) -> None:
    rn = Rn(tenant, "default", "upload", user, "conv_1", "turn_1", "attachment", "turn_1/attachments/a b:c%.csv")

    assert parse_rn(str(rn)) == rn


def test_an_rn_looks_as_the_design_says() -> None:
    rn = Rn("t", "p", "exec", "u:1", "conv_1", "turn_1", "output", "turn_1/outputs/x.png")

    assert str(rn) == "ef:t:p:chatbot:exec:u%3A1:conv_1:turn_1:output:turn_1/outputs/x.png"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "ef:t:p:chatbot:exec:u:conv_1:turn_1:output",
        "ef:t:p:chatbot:root:u:conv_1:turn_1:output:a",
        "ef:t:p:chatbot:exec:u:conv_1:turn_1:secret:a",
        "ef:t:p:chatbot:exec:u:conv_1:turn_1:output:a/../b",
        "ef:t:p:chatbot:exec:u:conv_1:turn_1:output:a%2fb",
        "ef:%74:p:chatbot:exec:u:conv_1:turn_1:output:a",
        "ef:t:p:chatbot:exec:%ff:conv_1:turn_1:output:a",
    ],
)
def test_a_non_canonical_spelling_is_refused(text: str) -> None:
    with pytest.raises(Invalid):
        parse_rn(text)


def test_an_object_lives_under_its_conversation() -> None:
    assert object_key("conv_1", "ab") == "conv_1/ab"
    assert upload_key("conv_1", "ab", "art_1") == "conv_1/ab.art_1"


def test_a_manifest_has_its_key_by_turn_and_round() -> None:
    assert manifest_key("conv_1", "turn_1", 3) == "conv_1/manifests/turn_1.3"
