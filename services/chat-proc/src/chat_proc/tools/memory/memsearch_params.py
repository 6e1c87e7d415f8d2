"""What `react.memsearch` takes, and which of its four ways of searching a call means."""

from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from everturn.errors import Invalid
from everturn.model.memory.snippets import SnippetTarget
from everturn.model.open_values import require_known
from everturn.ports.memory.search import ALL_TARGETS, MAX_LIMIT

MAX_QUERY_CHARS = 2_000
DEFAULT_HITS = 5
DEFAULT_TURNS = 20
DEFAULT_DAYS = 365
MAX_DAYS = 3_650
_FIRST = datetime(1970, 1, 1, tzinfo=UTC)
_LAST = datetime(9998, 1, 1, tzinfo=UTC)


class Mode(StrEnum):
    """By meaning and words; all turns in order; one turn by its place; the turns of a time."""

    SEMANTIC = "semantic"
    TIMELINE = "timeline"
    ORDINAL = "ordinal"
    TEMPORAL = "temporal"


_TARGETS = {
    Mode.SEMANTIC: ALL_TARGETS,
    Mode.TIMELINE: frozenset({SnippetTarget.SUMMARY}),
    Mode.ORDINAL: frozenset({SnippetTarget.SUMMARY, SnippetTarget.USER, SnippetTarget.ASSISTANT}),
    Mode.TEMPORAL: frozenset({SnippetTarget.SUMMARY, SnippetTarget.USER, SnippetTarget.ASSISTANT}),
}


_Target = Annotated[SnippetTarget, require_known(SnippetTarget)]


class MemsearchParams(BaseModel):
    """All may be left out; nothing at all asks for an overview. Times are ISO 8601; `to` is exclusive."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    query: str = Field(default="", max_length=MAX_QUERY_CHARS)
    mode: Mode | None = None
    targets: list[_Target] = Field(default_factory=lambda: [], max_length=len(SnippetTarget))
    scope: Literal["conversation", "user"] = "conversation"
    ordinal: int | None = Field(default=None, ge=1, le=1_000_000)
    since: datetime | None = Field(default=None, alias="from")
    to: datetime | None = None
    order: Literal["asc", "desc"] = "asc"
    top_k: int | None = Field(default=None, ge=1, le=MAX_LIMIT)
    days: int | None = Field(default=None, ge=1, le=MAX_DAYS)


def infer_mode(params: MemsearchParams) -> Mode:
    """What is meant, where the mode is not named. Raises Invalid when a named one lacks what it needs."""
    if params.mode is None:
        if params.ordinal is not None:
            return Mode.ORDINAL
        if params.query.strip():
            return Mode.SEMANTIC
        bounded = params.since or params.to or params.days
        return Mode.TEMPORAL if bounded else Mode.TIMELINE
    if params.mode is Mode.SEMANTIC and not params.query.strip():
        raise Invalid("mode semantic needs a query; for an overview leave both out.")
    if params.mode is Mode.ORDINAL and params.ordinal is None:
        raise Invalid("mode ordinal needs ordinal, the number of the turn from 1.")
    return params.mode


def choose_targets(params: MemsearchParams, mode: Mode) -> frozenset[SnippetTarget]:
    """The named ones, or those that suit the mode."""
    return frozenset(params.targets) or _TARGETS[mode]


def choose_times(params: MemsearchParams, now: datetime) -> tuple[datetime | None, datetime | None]:
    """From when on, and before when; None where nothing limits it. A time without a zone is UTC."""
    since, until = _in_utc(params.since), _in_utc(params.to)
    if since is None and params.days is not None:
        since = now - timedelta(days=params.days)
    return since, until


def _in_utc(moment: datetime | None) -> datetime | None:
    """Brought into the years in which every zone and the database can tell it; no turn is older or newer."""
    if moment is None:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    if moment.year < _FIRST.year:
        return _FIRST
    return _LAST if moment.year > _LAST.year else moment
