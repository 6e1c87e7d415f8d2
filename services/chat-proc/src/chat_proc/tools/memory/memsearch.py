"""`react.memsearch`: finds what was said earlier, by meaning and words, or by a turn's place or time."""

import json
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from importlib.resources import files
from typing import Any

from chat_proc.tools.memory.hits import Hit, build_found_hit, build_turn_hits, render_hits
from chat_proc.tools.memory.memsearch_params import (
    DEFAULT_DAYS,
    DEFAULT_HITS,
    DEFAULT_TURNS,
    MemsearchParams,
    Mode,
    choose_targets,
    choose_times,
    infer_mode,
)
from everturn.errors import Invalid, Unavailable
from everturn.model.commits import Effect
from everturn.ports.memory.embedder import Embedder, EmbedderUnavailable
from everturn.ports.memory.search import (
    MAX_LIMIT,
    CatalogQuery,
    MemorySearch,
    QueryVector,
    Scope,
    SnippetQuery,
)
from everturn.ports.tool import ToolCall, ToolContext, ToolOutcome, ToolSpec

MEMSEARCH_TOOL = "react.memsearch"
HITS_OF_CONVERSATION = 2
"""Of each, where all of a person's conversations are searched: one long talk must not hide the others."""
NOTHING = "Nothing was found. Try other words, scope user, or no parameters at all for an overview."


@dataclass(slots=True)
class _Answer:
    """What a search gave, and what the model should know of how it was done."""

    mode: Mode
    hits: list[Hit] = field(default_factory=list[Hit])
    notes: dict[str, Any] = field(default_factory=dict[str, Any])
    warnings: list[str] = field(default_factory=list[str])


class MemsearchTool:
    """Looks at ended turns only: the current one stands in the prompt."""

    def __init__(self, search: MemorySearch, embedder: Embedder) -> None:
        self._search = search
        self._embedder = embedder
        self.spec = ToolSpec(
            tool_id=MEMSEARCH_TOOL,
            summary="Find what was said in earlier turns: by topic, by the number of a turn, or by time.",
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
            return ToolOutcome("error", f"Memory can't be searched now: {error}. Go on without, or try again later.")
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
        return answer

    async def _embed(self, text: str, answer: _Answer) -> QueryVector | None:
        answer.notes["compared"] = "words only" if self._embedder.lexical_only else "meanings and words"
        try:
            (vector,) = await self._embedder.embed([text])
        except EmbedderUnavailable as error:
            answer.notes["compared"] = "words only"
            answer.warnings.append(f"Meanings could not be compared, only words were: {error}")
            return None
        return QueryVector(self._embedder.name, vector)

    async def _list(self, params: MemsearchParams, mode: Mode, context: ToolContext) -> _Answer:
        answer = _Answer(mode)
        since, until = choose_times(params, datetime.fromisoformat(context.now))
        by_place = mode is Mode.ORDINAL and params.ordinal is not None
        query = CatalogQuery(
            scope=_scope(params, context),
            since=since,
            until=until,
            newest_first=params.order == "desc",
            skip=params.ordinal - 1 if by_place and params.ordinal else 0,
            limit=1 if by_place else params.top_k or DEFAULT_TURNS,
        )
        page = await self._search.load_catalog(context.principal, query)
        targets = choose_targets(params, mode)
        answer.hits = [hit for turn in page.turns for hit in build_turn_hits(turn, targets, context.conversation_id)]
        answer.notes |= {"turns": len(page.turns), "total_turns": page.total}
        if params.query.strip():
            answer.warnings.append(f"query is not used in mode {mode.value}; leave mode out to search by it.")
        return answer


def _scope(params: MemsearchParams, context: ToolContext) -> Scope:
    return Scope(context.conversation_id if params.scope == "conversation" else None, context.turn_id)


def _build_outcome(answer: _Answer) -> ToolOutcome:
    lines, shown = render_hits(answer.hits)
    if shown < len(answer.hits):
        answer.warnings.append(f"{len(answer.hits) - shown} more hits did not fit; ask for fewer, or for shorter ones.")
    head: dict[str, Any] = {"mode": answer.mode.value, "hits": shown, **answer.notes}
    if answer.warnings:
        head["warnings"] = answer.warnings
    text = json.dumps(head, ensure_ascii=False) + "\n" + (lines or NOTHING)
    kept = answer.hits[:shown]
    data = {**head, "turn_ids": list(dict.fromkeys(hit.turn_id for hit in kept)), "refs": [hit.ref for hit in kept]}
    return ToolOutcome("ok", text, data=data)
