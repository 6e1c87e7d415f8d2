"""What `react.read` takes. Numbers are read here and not by the schema: a bad one spoils its own path only."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

from chat_proc.tools.context.excerpt import Range
from everturn.errors import Invalid

MAX_PATHS = 20
MAX_CHARS = 20_000
"""Of all texts of one call together."""
DEFAULT_CHARS = 12_000
"""Of one path."""

Path = Annotated[str, StringConstraints(min_length=1, max_length=2048)]
Number = int | float | str | bool | None


class ReadItem(BaseModel):
    """One path, with the part of it that is wanted."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    path: Path
    line_start: Number = None
    line_count: Number = None
    offset: Number = None
    max_text_symbols: Number = None

    def read_range(self) -> Range:
        """The wanted part. Raises Invalid with a sentence for the model."""
        return Range(
            _read_number("line_start", self.line_start, 1),
            _read_number("line_count", self.line_count, 1),
            _read_number("offset", self.offset, 0),
        )

    def read_cap(self) -> int:
        """How many characters of this path may be shown. Raises Invalid with a sentence for the model."""
        return min(_read_number("max_text_symbols", self.max_text_symbols, 1) or DEFAULT_CHARS, MAX_CHARS)


class ReadParams(BaseModel):
    """`paths` for whole texts, `items` for parts; `stats_only` leaves the contents out."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    paths: list[Path] = Field(default_factory=lambda: [])
    items: list[ReadItem | Path] = Field(default_factory=lambda: [])
    stats_only: bool = False

    @model_validator(mode="after")
    def check_number(self) -> "ReadParams":
        if not 0 < len(self.paths) + len(self.items) <= MAX_PATHS:
            raise ValueError(f"give 1 to {MAX_PATHS} paths or items")
        return self

    def wanted(self) -> list[ReadItem]:
        """All that is to be read, each path with the same range once."""
        items = (item if isinstance(item, ReadItem) else ReadItem(path=item) for item in (*self.paths, *self.items))
        return list(dict.fromkeys(items))


def _read_number(name: str, value: Number, least: int) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise Invalid(f"{name} must be a whole number from {least} on, not {str(value)[:40]!a}")
    return value
