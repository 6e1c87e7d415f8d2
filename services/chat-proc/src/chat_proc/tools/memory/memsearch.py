"""`react.memsearch`: finds earlier texts, by meaning and words, or by a turn's position or time."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from importlib.resources import files
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from chat_proc.catalog.tool import ToolCall, ToolContext, ToolOutcome, ToolSpec
from everturn.core import refs
from everturn.core.clock import iso
from everturn.core.errors import Invalid, Unavailable
from everturn.core.ids import ConversationId, TurnId
from everturn.core.open_values import require_known
from everturn.core.refs import qualify_ref
from everturn.memory.embedder import Embedder, EmbedderUnavailable
from everturn.memory.search import (
    ALL_TARGETS,
    MAX_LIMIT,
    CatalogQuery,
    CatalogTurn,
    FoundSnippet,
    MemorySearch,
    QueryVector,
    Scope,
    SnippetQuery,
    SnippetTarget,
    embed_query,
)
from everturn.turns.model import Effect

MAX_QUERY_CHARS = 2_000
DEFAULT_HITS = 5
DEFAULT_TURNS = 20
DEFAULT_DAYS = 365
MAX_DAYS = 3_650
_FIRST = datetime(1970, 1, 1, tzinfo=UTC)
_LAST = datetime(9998, 1, 1, tzinfo=UTC)

_Target = Annotated[SnippetTarget, require_known(SnippetTarget)]

MAX_HIT_CHARS = 500
MAX_HITS_CHARS = 10_000
"""Limit of all hits of one call together, so that a result is shown in full."""

MEMSEARCH_TOOL = "react.memsearch"
HITS_OF_CONVERSATION = 2
"""Limit per conversation if all of a person's conversations are searched: a long one must not hide the others."""
NOTHING = "Nothing was found. Try other words, scope user, or no parameters for an overview."


class Mode(StrEnum):
    """By meaning and words; all turns in order; one turn by its position; the turns of a period."""

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


class MemsearchParams(BaseModel):
    """All parameters are optional; without any, the result is an overview. Times are ISO 8601; `to` is exclusive."""

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
    """The mode, inferred if not given. Raises Invalid if a given mode lacks a required parameter."""
    if params.mode is None:
        if params.ordinal is not None:
            return Mode.ORDINAL
        if params.query.strip():
            return Mode.SEMANTIC
        bounded = params.since or params.to or params.days
        return Mode.TEMPORAL if bounded else Mode.TIMELINE
    if params.mode is Mode.SEMANTIC and not params.query.strip():
        raise Invalid("mode semantic needs a query; for an overview, leave out both.")
    if params.mode is Mode.ORDINAL and params.ordinal is None:
        raise Invalid("mode ordinal needs ordinal, the number of the turn from 1.")
    return params.mode


def choose_targets(params: MemsearchParams, mode: Mode) -> frozenset[SnippetTarget]:
    """The given targets, or the defaults of the mode."""
    return frozenset(params.targets) or _TARGETS[mode]


def choose_times(params: MemsearchParams, now: datetime) -> tuple[datetime | None, datetime | None]:
    """The start and the exclusive end; None if unlimited. A time without a zone is UTC."""
    since, until = _in_utc(params.since), _in_utc(params.to)
    if since is None and params.days is not None:
        since = now - timedelta(days=params.days)
    return since, until


def _in_utc(moment: datetime | None) -> datetime | None:
    """Clamp a time to the years that every zone and the database support; no turn is older or newer."""
    if moment is None:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    if moment.year < _FIRST.year:
        return _FIRST
    return _LAST if moment.year > _LAST.year else moment


@dataclass(frozen=True, slots=True)
class Hit:
    """One found text. `score` ranks hits by relevance; listed turns have a position instead."""

    turn_id: TurnId
    ref: str
    role: str
    text: str
    ts: str
    turn_index_path: str
    score: float | None = None
    ordinal: int | None = None

    def as_json(self) -> dict[str, Any]:
        """The fields that are set."""
        fields: dict[str, Any] = {
            "turn_id": self.turn_id,
            "ref": self.ref,
            "role": self.role,
            "text": self.text,
            "score": self.score,
            "ordinal": self.ordinal,
            "ts": self.ts,
            "turn_index_path": self.turn_index_path,
        }
        return {name: value for name, value in fields.items() if value is not None}


def build_found_hit(found: FoundSnippet, here: ConversationId) -> Hit:
    """A snippet as seen from the conversation `here`."""
    owner = None if found.conversation_id == here else found.conversation_id
    return Hit(
        turn_id=found.turn_id,
        ref=spell_ref(found.ref, owner),
        role=found.target.value,
        text=_shorten(found.text),
        ts=iso(found.ts),
        turn_index_path=refs.turn_index_ref(found.turn_id, conversation=owner),
        score=round(found.score, 4),
    )


def build_turn_hits(turn: CatalogTurn, here: ConversationId) -> list[Hit]:
    """The texts of a listed turn as seen from the conversation `here`."""
    owner = None if turn.conversation_id == here else turn.conversation_id
    return [
        Hit(
            turn_id=turn.turn_id,
            ref=spell_ref(said.ref, owner),
            role=said.target.value,
            text=_shorten(said.text),
            ts=said.ts,
            turn_index_path=refs.turn_index_ref(turn.turn_id, conversation=owner),
            ordinal=turn.ordinal,
        )
        for said in turn.texts
    ]


def spell_ref(ref: str, owner: ConversationId | None) -> str:
    """A stored ref in a form that the model can use: a ref of another conversation includes that conversation."""
    if owner is None:
        return ref
    try:
        return str(qualify_ref(refs.parse_ref(ref), owner))
    except Invalid:
        return ref


def render_hits(hits: Sequence[Hit]) -> tuple[str, int]:
    """One line of JSON for each hit, and how many fit."""
    lines: list[str] = []
    chars = 0
    for hit in hits:
        line = json.dumps(hit.as_json(), ensure_ascii=False)
        chars += len(line) + 1
        if lines and chars > MAX_HITS_CHARS:
            break
        lines.append(line)
    return "\n".join(lines), len(lines)


def _shorten(text: str) -> str:
    return text if len(text) <= MAX_HIT_CHARS else text[:MAX_HIT_CHARS] + "..."


@dataclass(slots=True)
class _Answer:
    """The result of a search, and notes for the model on how it was done."""

    mode: Mode
    hits: list[Hit] = field(default_factory=list[Hit])
    notes: dict[str, Any] = field(default_factory=dict[str, Any])
    warnings: list[str] = field(default_factory=list[str])


class MemsearchTool:
    """Searches ended turns only: the current one is in the prompt."""

    def __init__(self, search: MemorySearch, embedder: Embedder) -> None:
        self._search = search
        self._embedder = embedder
        self.spec = ToolSpec(
            tool_id=MEMSEARCH_TOOL,
            summary="Find texts of earlier turns: by topic, by the number of a turn, or by time.",
            guide=files("chat_proc.tools.memory").joinpath("memsearch.md").read_text(encoding="utf-8"),
            params=MemsearchParams,
            effect=Effect.PURE,
            strategy="exploration",
        )

    async def run(self, call: ToolCall) -> ToolOutcome:
        params = MemsearchParams.model_validate(call.params)
        try:
            mode = infer_mode(params)
            answer = await self._answer(params, mode, call.context)
        except Invalid as invalid:
            return ToolOutcome("error", f"Nothing was searched: {invalid.detail}")
        except Unavailable as error:
            return ToolOutcome(
                "error", f"Memory can't be searched now: {error}. Continue without it, or try again later."
            )
        return _build_outcome(answer)

    async def _answer(self, params: MemsearchParams, mode: Mode, context: ToolContext) -> _Answer:
        if mode is Mode.SEMANTIC:
            return await self._find(params, context)
        return await self._list(params, mode, context)

    async def _find(self, params: MemsearchParams, context: ToolContext) -> _Answer:
        answer = _Answer(Mode.SEMANTIC)
        now = datetime.fromisoformat(context.now)
        since, until = choose_times(params, now)
        query = SnippetQuery(
            scope=_scope(params, context),
            text=params.query,
            since=since or now - timedelta(days=DEFAULT_DAYS),
            until=until or now + timedelta(days=1),
            now=now,
            vector=await self._embed(params.query, answer),
            targets=choose_targets(params, Mode.SEMANTIC),
            limit=params.top_k or DEFAULT_HITS,
            per_conversation=HITS_OF_CONVERSATION if params.scope == "user" else MAX_LIMIT,
        )
        found = await self._search.find_snippets(context.principal, query)
        answer.hits = [build_found_hit(each, context.conversation_id) for each in found]
        if unindexed := await self._search.count_unindexed(context.principal, query.scope):
            answer.warnings.append(
                f"Turns not indexed yet: {unindexed}. A query can't find them; list the newest turns with "
                '{"order": "desc"} and no query.'
            )
        return answer

    async def _embed(self, text: str, answer: _Answer) -> QueryVector | None:
        answer.notes["ranking"] = "lexical" if self._embedder.lexical_only else "hybrid"
        try:
            return await embed_query(self._embedder, text)
        except EmbedderUnavailable as error:
            answer.notes["ranking"] = "lexical"
            answer.warnings.append(f"Semantic search is unavailable, so only words were compared: {error}")
            return None

    async def _list(self, params: MemsearchParams, mode: Mode, context: ToolContext) -> _Answer:
        answer = _Answer(mode)
        since, until = choose_times(params, datetime.fromisoformat(context.now))
        by_place = mode is Mode.ORDINAL and params.ordinal is not None
        query = CatalogQuery(
            scope=_scope(params, context),
            targets=choose_targets(params, mode),
            since=since,
            until=until,
            newest_first=params.order == "desc",
            skip=params.ordinal - 1 if by_place and params.ordinal else 0,
            limit=1 if by_place else params.top_k or DEFAULT_TURNS,
        )
        page = await self._search.load_catalog(context.principal, query)
        answer.hits = [hit for turn in page.turns for hit in build_turn_hits(turn, context.conversation_id)]
        answer.notes |= {"turns": len(page.turns), "total_turns": page.total}
        if params.query.strip():
            answer.warnings.append(f"query is not used in mode {mode.value}; leave mode out to search by it.")
        return answer


def _scope(params: MemsearchParams, context: ToolContext) -> Scope:
    return Scope(context.conversation_id if params.scope == "conversation" else None, context.turn_id)


def _build_outcome(answer: _Answer) -> ToolOutcome:
    lines, shown = render_hits(answer.hits)
    if shown < len(answer.hits):
        answer.warnings.append(f"{len(answer.hits) - shown} more hits did not fit; request fewer hits.")
    head: dict[str, Any] = {"mode": answer.mode.value, "hits": shown, **answer.notes}
    if answer.warnings:
        head["warnings"] = answer.warnings
    text = json.dumps(head, ensure_ascii=False) + "\n" + (lines or NOTHING)
    kept = answer.hits[:shown]
    data = {**head, "turn_ids": list(dict.fromkeys(hit.turn_id for hit in kept)), "refs": [hit.ref for hit in kept]}
    return ToolOutcome("ok", text, data=data)
