"""What coming in as a guest answers."""

from pydantic import BaseModel, ConfigDict


class GuestOut(BaseModel):
    """`token` is the guest's bearer token; anyone who has it can act as this guest. `expires_at` is UTC, RFC 3339."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    token: str
    user_id: str
    expires_at: str
