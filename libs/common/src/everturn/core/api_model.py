"""The base of the objects that the API sends."""

from pydantic import BaseModel, ConfigDict


class ApiModel(BaseModel):
    """Frozen, and rejects unknown fields. The text below a field is its description in the API document."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)
