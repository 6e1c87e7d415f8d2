"""What JSON bodies of all rooms share."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, StringConstraints

BundleId = Annotated[str, StringConstraints(min_length=1, max_length=128, pattern=r"^[A-Za-z0-9][A-Za-z0-9._@/-]*$")]
"""A bundle by its name, as bodies name it."""


class JsonBody(BaseModel):
    """Nothing unknown inside, and nothing taken for what it is not."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


def is_absent(value: object) -> bool:
    """For `exclude_if`: what isn't there is left out instead of told as null."""
    return value is None
