"""A problem as RFC 9457 describes it; what an error looks like to a client, in a response or in an event."""

from pydantic import BaseModel, ConfigDict


class Problem(BaseModel):
    """`type` is stable and starts with `urn:everturn:problem:`; `status` is an HTTP status."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    type: str
    title: str
    status: int
    detail: str = ""
    instance: str | None = None


def problem(kind: str, title: str, status: int, detail: str = "") -> Problem:
    """Build a problem whose type is `urn:everturn:problem:<kind>`."""
    return Problem(type=f"urn:everturn:problem:{kind}", title=title, status=status, detail=detail)
