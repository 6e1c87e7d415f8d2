"""The output of the analysis program, as data."""

import re
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

_RESULT = re.compile(r"^RESULT (\{.*\})\s*$", re.MULTILINE)


class Figures(BaseModel):
    """Figures of one column; None where there are no numbers."""

    model_config = ConfigDict(frozen=True)

    total: float | None = None
    mean: float | None = None
    min: float | None = None
    max: float | None = None
    median: float | None = None
    count: int = 0
    missing: int = 0

    def figure(self, name: str) -> float | None:
        """The figure of this name; the total for an unknown name."""
        match name:
            case "mean":
                return self.mean
            case "min":
                return self.min
            case "max":
                return self.max
            case "median":
                return self.median
            case _:
                return self.total


class GroupRow(BaseModel):
    """Figures of one group, by column."""

    model_config = ConfigDict(frozen=True)

    name: str
    rows: int
    values: dict[str, Figures]


class ColumnProfile(BaseModel):
    """What is in one column; `told` are its commonest values or its range."""

    model_config = ConfigDict(frozen=True)

    name: str
    kind: Literal["number", "date", "text"]
    missing: int
    distinct: int
    told: str


class TableResult(BaseModel):
    """What the analysis program prints. `by` are the columns of the groups, each with its period or None.

    `numbers` are the columns that have figures, `dates` and `labels` those that groups can be made of.
    """

    model_config = ConfigDict(frozen=True)

    error: str | None = None
    file: str = ""
    rows: int = 0
    used_rows: int = 0
    columns: tuple[str, ...] = ()
    column_count: int = 0
    filters: dict[str, tuple[str, ...]] = {}
    figures: tuple[str, ...] = ()
    totals: dict[str, Figures] = {}
    peaks: dict[str, dict[str, str]] = {}
    correlation: float | None = None
    group: str | None = None
    by: tuple[tuple[str, str | None], ...] = ()
    group_count: int = 0
    groups: tuple[GroupRow, ...] = ()
    ranking: tuple[Literal["high", "low"], int] | None = None
    numbers: tuple[str, ...] = ()
    dates: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    profile: tuple[ColumnProfile, ...] = ()
    head: tuple[tuple[str, ...], ...] = ()

    @property
    def measures(self) -> list[str]:
        """The columns for which the groups have figures."""
        return [name for name in self.totals if any(name in row.values for row in self.groups)]


def try_read_result(report: str) -> TableResult | None:
    """The result in a tool's report, or None if it is missing or was cut."""
    found = _RESULT.findall(report)
    try:
        return TableResult.model_validate_json(found[-1]) if found else None
    except ValidationError:
        return None
