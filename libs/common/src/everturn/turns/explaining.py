"""Where a turn is and what it waits for, as its rows say."""

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class LastBlock:
    """The turn's newest commit, `age_s` seconds ago."""

    type: str
    round: int
    seq: int
    ts: str
    age_s: float


@dataclass(frozen=True, slots=True)
class OpenCall:
    """A call of a tool that has begun and has no result."""

    tool_id: str
    call_id: str
    effect: str


@dataclass(frozen=True, slots=True)
class OpenQuestion:
    """A call that waits for a person's approval."""

    tool_id: str
    call_id: str
    expires_at: datetime


@dataclass(frozen=True, slots=True)
class WaitedRun:
    """A detached run. `holder` is the worker that monitors it; `ended_as` is None while it runs."""

    call_id: str
    engine: str
    task: str
    starts: int
    holder: str
    ended_as: str | None
    ends_by: datetime


@dataclass(frozen=True, slots=True)
class TurnState:
    """The rows of one turn. Ages and times left are in seconds, by the database's clock.

    `owner` to `expires_in_s` are those of the conversation's lease, None without one. `ahead` is the number of turns in
    front of it on its lane, None unless it is queued. `rung_at` is None while its tenant's share of the lane is used
    up. `running` counts all running turns. `error` is empty unless the turn failed.
    """

    id: str
    conversation_id: str
    tenant: str
    project: str
    user_id: str
    status: str
    lane: str
    attempt: int
    outcome: str | None
    error: str
    created_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    announced_at: datetime | None
    rung_at: datetime | None
    leased_s: float
    owner: str | None
    fence: int | None
    held_s: float | None
    expires_in_s: float | None
    signals: int
    ahead: int | None
    running_of_user: int
    running_of_tenant: int
    running: int
    block: LastBlock | None
    calls: tuple[OpenCall, ...]
    questions: tuple[OpenQuestion, ...]
    runs: tuple[WaitedRun, ...] = ()
