"""A signed value is verified, and no other value is."""

import base64
import json

import pytest

from ingress.auth.signed_tokens import MAX_SIGNED_CHARS, TokenSigner

SEALS = TokenSigner(b"0123456789abcdef0123456789abcdef")
VALUE = {"user": "ann", "expires": 12.5, "roles": ["paid"], "until": None}


def test_a_sealed_value_comes_back() -> None:
    assert SEALS.try_read("evt_", SEALS.build("evt_", VALUE)) == VALUE
    assert TokenSigner(b"0123456789abcdef0123456789abcdef").try_read("evt_", SEALS.build("evt_", VALUE)) == VALUE


def test_a_seal_is_for_one_purpose_and_from_one_secret() -> None:
    ticket = SEALS.build("evt_", VALUE)

    assert SEALS.try_read("evg_", ticket) is None
    assert SEALS.try_read("evg_", "evg_" + ticket.removeprefix("evt_")) is None
    assert TokenSigner(b"another secret of enough bytes...").try_read("evt_", ticket) is None


def test_a_change_anywhere_breaks_the_seal() -> None:
    sealed = SEALS.build("evt_", VALUE)

    for place in range(len(sealed)):
        other = "A" if sealed[place] != "A" else "B"
        changed = sealed[:place] + other + sealed[place + 1 :]
        read = SEALS.try_read("evt_", changed)
        # The last character of base64 has bits that mean nothing; they are compared all the same.
        assert read is None, (place, changed)


@pytest.mark.parametrize(
    "text", ["", "evt_", "evt_.", "evt_e30", "evt_e30.", "evt_é.é", "evt_" + "a" * MAX_SIGNED_CHARS, "evt_\x00.\x00"]
)
def test_what_is_no_seal_is_none(text: str) -> None:
    assert SEALS.try_read("evt_", text) is None


def test_a_value_without_its_mac_is_none() -> None:
    payload = base64.urlsafe_b64encode(json.dumps(VALUE).encode()).decode().rstrip("=")

    assert SEALS.try_read("evt_", f"evt_{payload}.") is None
    assert SEALS.try_read("evt_", f"evt_{payload}.{'A' * 43}") is None


def test_a_short_secret_is_refused() -> None:
    with pytest.raises(ValueError, match="32 bytes"):
        TokenSigner(b"short")
