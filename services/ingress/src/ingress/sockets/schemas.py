"""What clients send over a socket in addition to the REST forms, and the description of their session."""

from typing import Any

from pydantic import ConfigDict, Field

from everturn.core.identity import Role
from ingress.admission.fields import JsonBody

MAX_NAME_CHARS = 128


class AuthIn(JsonBody):
    """Who connects: what REST sends in a header and in the path."""

    tenant: str = Field(default="default", max_length=MAX_NAME_CHARS)
    project: str = Field(default="default", max_length=MAX_NAME_CHARS)
    token: str | None = Field(default=None, max_length=16_000)


class FileIn(JsonBody):
    """A file as binary attachment."""

    filename: str = Field(min_length=1, max_length=1024)
    mime: str = Field(default="", max_length=255)
    data: bytes


class SubmitIn(JsonBody):
    """The fields that a submission has in addition to those of REST."""

    model_config = ConfigDict(frozen=True, extra="ignore", strict=True)

    conversation_id: str = Field(max_length=80)
    idempotency_key: str | None = Field(default=None, max_length=202)
    files: tuple[FileIn, ...] = Field(default=(), max_length=100, strict=False)


class TargetIn(JsonBody):
    """A conversation."""

    conversation_id: str = Field(max_length=80)


class SubscribeIn(TargetIn):
    """A conversation, and the event id to continue after; `0-0` is before the first event."""

    after: str | None = Field(default=None, max_length=80)


class SubscribedOut(JsonBody):
    """The conversation's events follow, `ready` first."""

    conversation_id: str
    after: str | None


class UnsubscribedOut(JsonBody):
    """No more events of this conversation are sent."""

    conversation_id: str


class LimitsOut(JsonBody):
    """The limits of this socket."""

    message_bytes: int
    text_chars: int
    files: int
    subscriptions: int
    events_per_s: float


class SessionInfo(JsonBody):
    """The client's identity. `expires_at` is the Unix time at which its credential ends."""

    user_id: str
    tenant: str
    project: str
    roles: tuple[Role, ...]
    expires_at: float | None
    limits: LimitsOut


def drop_fields(payload: dict[str, Any], form: type[SubmitIn]) -> dict[str, Any]:
    """The fields of a submission that belong to the REST form."""
    return {name: value for name, value in payload.items() if name not in form.model_fields}
