"""The schema of guests."""

import pytest
from pydantic import ValidationError

from ingress.guests import GuestOut


def test_a_guest_gets_a_token_a_name_and_an_end() -> None:
    assert set(GuestOut.model_fields) == {"token", "user_id", "expires_at"}
    with pytest.raises(ValidationError):
        GuestOut(token="t", user_id="u")  # pyright: ignore[reportCallIssue]
