"""The roots of our error classes. A class's one docstring sentence is its message."""


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
