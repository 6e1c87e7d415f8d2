"""The base classes of our errors, and the problem details of the API. The docstring of an error class is its
message."""

from everturn.core.api_model import ApiModel


class EverturnError(Exception):
    """Something in Everturn failed."""

    def __init__(self, detail: str = "") -> None:
        self.detail = detail
        sentence = (type(self).__doc__ or "").strip()
        super().__init__(f"{sentence} {detail}".strip())


class NotFound(EverturnError):
    """It does not exist for this caller."""


class Conflict(EverturnError):
    """The request conflicts with the current state."""


class Invalid(EverturnError):
    """The input is invalid."""


class StaleFence(EverturnError):
    """The lease was lost; another worker owns this conversation."""


class Unavailable(EverturnError):
    """A component that we depend on does not respond right now."""


class DatabaseFault(EverturnError):
    """The database rejected a statement."""

    # A defect of our code or schema, or a wrong password: the same statement would be rejected again.


class OutOfOrder(Conflict):
    """The blocks do not follow the last stored one."""


class Problem(ApiModel):
    """`type` is stable and starts with `urn:everturn:problem:`; `status` is an HTTP status."""

    type: str
    """What went wrong, as a stable URN."""
    title: str
    """What went wrong, in a few words."""
    status: int
    """The HTTP status."""
    detail: str = ""
    """What was wrong, in a sentence."""
    instance: str | None = None
    """What the problem is about."""


def problem(kind: str, title: str, status: int, detail: str = "") -> Problem:
    """Build a problem whose type is `urn:everturn:problem:<kind>`."""
    return Problem(type=f"urn:everturn:problem:{kind}", title=title, status=status, detail=detail)
