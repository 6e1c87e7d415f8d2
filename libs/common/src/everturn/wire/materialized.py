"""A conversation as whole documents, for clients that keep one: its timeline with its sources, and its turn logs."""

from typing import Any, Literal

from pydantic import Field

from everturn.wire.views import StateView, View


class BlockView(View):
    """One block as it is stored. `path` is its ref; `hash` follows from the block before it."""

    seq: int
    turn_id: str
    round: int
    type: str
    author: str
    path: str
    call_id: str | None = None
    ts: str
    ts_first: str | None = None
    body: dict[str, Any]
    hash: str


class SourceView(View):
    """One row of the source pool. `text` is the beginning of its text, which has `text_chars` characters."""

    sid: int
    title: str
    url: str
    source_type: Literal["web", "file", "attachment", "manual"]
    objective_relevance: float | None = None
    published_time_iso: str | None = None
    favicon_url: str | None = None
    mime: str = ""
    text: str = ""
    text_chars: int = 0
    used: bool = False


class TimelineView(View):
    """The blocks of the turns that were asked for, and all sources of the conversation by `sid`."""

    version: Literal[1] = 1
    conversation_id: str
    conversation_title: str
    conversation_started_at: str
    last_activity_at: str
    turn_ids: tuple[str, ...]
    blocks: tuple[BlockView, ...]
    sources_pool: tuple[SourceView, ...]


class TurnLogView(View):
    """What one turn left: its blocks by `seq`, the sources its answers cite, and its tokens, input and output."""

    turn_id: str
    ts: str
    end_ts: str | None = None
    first_seq: int | None = None
    last_seq: int | None = None
    blocks_count: int
    sources_used: tuple[int, ...] = ()
    tokens: int


class DerivedArtifacts(View):
    """Documents built from rows for one answer; nothing of them is stored."""

    timeline: TimelineView = Field(serialization_alias="conv.timeline.v1")
    turn_log: tuple[TurnLogView, ...] = Field(serialization_alias="turn.log")


class FetchView(StateView):
    """A conversation with its last turns; the documents only if they were asked for."""

    artifacts: DerivedArtifacts | None = None
