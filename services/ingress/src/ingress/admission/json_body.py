"""What JSON bodies of all rooms share."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, StringConstraints

from everturn.wire.cursors import MAX_CURSOR_CHARS
from ingress.errors import unprocessable

BundleId = Annotated[str, StringConstraints(min_length=1, max_length=128, pattern=r"^[A-Za-z0-9][A-Za-z0-9._@/-]*$")]
"""A bundle by its name, as bodies name it."""
BUNDLE_HELP = "A bundle of this server's configuration, or `default`; any other is a 422."


Cursor = Annotated[str, StringConstraints(min_length=1, max_length=MAX_CURSOR_CHARS)]
"""The `next_cursor` of a page, which is opaque to clients."""


class JsonBody(BaseModel):
    """Nothing unknown inside, and nothing taken for what it is not."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class Bundles:
    """The bundles that clients may name."""

    def __init__(self, known: frozenset[str]) -> None:
        self._known = known

    def check(self, bundle_id: str | None) -> None:
        """Raises a 422 problem for a bundle that this server does not have; None names none."""
        if bundle_id is not None and bundle_id not in self._known:
            field = {"field": "body.bundle_id", "message": f"is one of {', '.join(sorted(self._known))}"}
            raise unprocessable("body.bundle_id names an unknown bundle.", errors=[field])


def is_absent(value: object) -> bool:
    """For `exclude_if`: what isn't there is left out instead of told as null."""
    return value is None
