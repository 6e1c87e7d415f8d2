"""The index of a turn: every ref that can be read back, in sections, each with a few words."""

from pydantic import BaseModel, ConfigDict


class IndexPart(BaseModel):
    """What all parts share: frozen, and nothing unknown inside."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class IndexEntry(IndexPart):
    """A text. `kind` is its block type, `hint` its first words."""

    ref: str
    kind: str
    hint: str = ""


class IndexedCall(IndexPart):
    """A tool call. `result_ref` and `status` are null while it has no result, `call_ref` if the call is lost."""

    tool_id: str
    status: str | None
    call_ref: str | None
    result_ref: str | None
    hint: str = ""


class IndexedFile(IndexPart):
    """A file. `source` is the tool or the block type that brought it, `size` in bytes."""

    ref: str
    kind: str
    mime: str
    size: int
    source: str
    visibility: str
    hint: str = ""


class TurnIndexView(IndexPart):
    """One turn. Times are ISO 8601 in UTC; `outcome` is null while it runs. `more` says whether blocks are left out."""

    turn_id: str
    ref: str
    started_at: str | None
    ended_at: str | None
    outcome: str | None
    summaries: tuple[IndexEntry, ...] = ()
    messages: tuple[IndexEntry, ...] = ()
    events: tuple[IndexEntry, ...] = ()
    notes: tuple[IndexEntry, ...] = ()
    tools: tuple[IndexedCall, ...] = ()
    artifacts: tuple[IndexedFile, ...] = ()
    sources: tuple[str, ...] = ()
    more: bool = False
