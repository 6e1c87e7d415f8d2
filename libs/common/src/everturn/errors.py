"""The roots of our error classes. A class's one docstring sentence is its message."""


class EverturnError(Exception):
    """Something in Everturn failed."""

    def __init__(self, detail: str = "") -> None:
        self.detail = detail
        sentence = (type(self).__doc__ or "").strip()
        super().__init__(f"{sentence} {detail}".strip())


class NotFound(EverturnError):
    """There is no such thing for this caller."""


class Conflict(EverturnError):
    """The request contradicts the present state."""


class Invalid(EverturnError):
    """The input is not acceptable."""


class StaleFence(EverturnError):
    """The lease was lost; another worker owns this conversation."""


class Unavailable(EverturnError):
    """A part we depend on does not answer right now."""
