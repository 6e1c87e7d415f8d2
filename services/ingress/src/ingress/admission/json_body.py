"""What JSON bodies of all rooms share."""

from pydantic import BaseModel, ConfigDict


class JsonBody(BaseModel):
    """Nothing unknown inside, and nothing taken for what it is not."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


def is_absent(value: object) -> bool:
    """For `exclude_if`: what isn't there is left out instead of told as null."""
    return value is None
