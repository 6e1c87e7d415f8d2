"""The tools `memory.search`, `memory.read` and `memory.write`: the agent's durable memories of a person."""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from importlib.resources import files
from typing import Final

from pydantic import BaseModel, ConfigDict, Field, model_validator

from chat_proc.catalog.tool import ToolCall, ToolContext, ToolOutcome, ToolSpec
from everturn.core.clock import iso
from everturn.core.errors import Conflict, Unavailable
from everturn.core.identity import Principal
from everturn.memory.embedder import Embedder, EmbedderUnavailable
from everturn.memory.search import QueryVector, embed_query
from everturn.memory.user_memories import (
    MAX_LABEL_CHARS,
    MAX_LABELS,
    MAX_MEMORY_CHARS,
    ForgottenByOwner,
    UserMemories,
    UserMemory,
    make_memory_id,
    rank_memories,
)
from everturn.turns.model import Effect

MAX_IDS = 10

DEFAULT_LIMIT = 8
MAX_LIMIT = 20


class MemoryWriteParams(BaseModel):
    """`memory_id` names the memory that is changed or forgotten; an empty text forgets it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    memory_id: str = Field(default="", max_length=40)
    text: str = Field(default="", max_length=MAX_MEMORY_CHARS)
    labels: list[str] | None = Field(default=None, max_length=MAX_LABELS)
    pinned: bool | None = None
    confidence: float | None = Field(default=None, ge=0, le=1)
    salience: float | None = Field(default=None, ge=0, le=1)
    forget: bool = False

    @model_validator(mode="after")
    def check_named(self) -> "MemoryWriteParams":
        if not self.memory_id and not self.text.strip():
            raise ValueError("pass a text, or the memory_id of the memory to forget")
        if any(not 0 < len(label.strip()) <= MAX_LABEL_CHARS for label in self.labels or ()):
            raise ValueError(f"a label must have 1 to {MAX_LABEL_CHARS} characters")
        return self


USER_MEMORY_TOOLS: Final = ("memory.write", "memory.read", "memory.search")


class MemoryWriteTool:
    """The id is derived from the text, so the same call twice writes one row."""

    def __init__(self, memories: UserMemories, embedder: Embedder) -> None:
        self._memories = memories
        self._embedder = embedder
        self.spec = ToolSpec(
            tool_id="memory.write",
            summary="Save, change or delete a durable memory of this user.",
            guide=files("chat_proc.tools.memory").joinpath("memory_write.md").read_text(encoding="utf-8"),
            params=MemoryWriteParams,
            effect=Effect.IDEMPOTENT,
            strategy="exploitation",
            asks_after_untrusted=True,
        )

    async def run(self, call: ToolCall) -> ToolOutcome:
        params = MemoryWriteParams.model_validate(call.params)
        who = call.context.principal
        try:
            if params.forget or not params.text.strip():
                return await self._forget(who, params)
            return await self._write(params, call.context)
        except ForgottenByOwner:
            return ToolOutcome(
                "error", "Nothing was saved: the user has just deleted this memory. Do not save it again."
            )
        except Conflict as full:
            return ToolOutcome("error", f"Nothing was saved: {full.detail} Forget one that is no longer useful.")
        except Unavailable as error:
            return ToolOutcome("error", f"Nothing was saved: {error}")

    async def _forget(self, who: Principal, params: MemoryWriteParams) -> ToolOutcome:
        memory_id = params.memory_id or make_memory_id(params.text)
        if await self._memories.forget(who, memory_id):
            return ToolOutcome("ok", f"Forgotten: {memory_id}.")
        return ToolOutcome("ok", f"There is no memory {memory_id!a}, so nothing was deleted.")

    async def _write(self, params: MemoryWriteParams, context: ToolContext) -> ToolOutcome:
        who, now = context.principal, datetime.fromisoformat(context.now)
        text = " ".join(params.text.split())
        memory_id = make_memory_id(text)
        known = {memory.id: memory for memory in await self._memories.load(who, [memory_id, params.memory_id])}
        before = known.get(params.memory_id) or known.get(memory_id) or UserMemory(memory_id, text, now, now)
        memory = _change(replace(before, id=memory_id, text=text, updated_at=now), params)
        vector = await _try_embed(self._embedder, text)
        await self._memories.save(who, memory, vector, turn_id=context.turn_id, instead_of=params.memory_id)
        if params.memory_id and params.memory_id != memory_id:
            # Last, so that a crash between the two leaves an extra memory rather than none.
            await self._memories.forget(who, params.memory_id)
        return ToolOutcome("ok", f"Saved as {memory_id}.", data={"memory_id": memory_id})


async def _try_embed(embedder: Embedder, text: str) -> QueryVector | None:
    """None if the encoder is unavailable: then only words are compared."""
    try:
        return await embed_query(embedder, text)
    except EmbedderUnavailable:
        return None


def _change(memory: UserMemory, params: MemoryWriteParams) -> UserMemory:
    """Parameters that are not given stay unchanged."""
    labels = memory.labels if params.labels is None else tuple(dict.fromkeys(label.strip() for label in params.labels))
    return replace(
        memory,
        labels=labels,
        pinned=memory.pinned if params.pinned is None else params.pinned,
        confidence=memory.confidence if params.confidence is None else params.confidence,
        salience=memory.salience if params.salience is None else params.salience,
    )


def render_memories(memories: Sequence[UserMemory]) -> str:
    """One line of JSON for each."""
    return "\n".join(json.dumps(_as_json(memory), ensure_ascii=False) for memory in memories)


def _as_json(memory: UserMemory) -> dict[str, object]:
    return {
        "memory_id": memory.id,
        "text": memory.text,
        "labels": list(memory.labels),
        "pinned": memory.pinned,
        "confidence": memory.confidence,
        "salience": memory.salience,
        "updated": iso(memory.updated_at),
    }


class MemoryReadParams(BaseModel):
    """Ids as `memory.search` and the hotset show them."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    memory_ids: list[str] = Field(min_length=1, max_length=MAX_IDS)


class MemoryReadTool:
    """Reports which of the ids don't exist."""

    def __init__(self, memories: UserMemories) -> None:
        self._memories = memories
        self.spec = ToolSpec(
            tool_id="memory.read",
            summary="Read memories of this user by their ids.",
            guide=files("chat_proc.tools.memory").joinpath("memory_read.md").read_text(encoding="utf-8"),
            params=MemoryReadParams,
            effect=Effect.PURE,
            strategy="exploration",
        )

    async def run(self, call: ToolCall) -> ToolOutcome:
        wanted = list(dict.fromkeys(MemoryReadParams.model_validate(call.params).memory_ids))
        try:
            found = await self._memories.load(call.context.principal, wanted)
        except Unavailable as error:
            return ToolOutcome("error", f"Memories can't be read now: {error}")
        missing = [name for name in wanted if name not in {memory.id for memory in found}]
        lines = [render_memories(found)] if found else []
        lines += [f"No memories with these ids: {', '.join(missing)}."] if missing else []
        return ToolOutcome("ok" if found else "error", "\n".join(lines))


class MemorySearchParams(BaseModel):
    """Without a query the most important memories are returned; `labels` selects those with one of these labels."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    query: str = Field(default="", max_length=2_000)
    labels: list[str] = Field(default_factory=lambda: [], max_length=MAX_LABELS)
    limit: int = Field(default=DEFAULT_LIMIT, ge=1, le=MAX_LIMIT)


class MemorySearchTool:
    """Compares all of a person's memories, since there are few."""

    def __init__(self, memories: UserMemories, embedder: Embedder) -> None:
        self._memories = memories
        self._embedder = embedder
        self.spec = ToolSpec(
            tool_id="memory.search",
            summary="Find durable memories of this user, across conversations.",
            guide=files("chat_proc.tools.memory").joinpath("memory_search.md").read_text(encoding="utf-8"),
            params=MemorySearchParams,
            effect=Effect.PURE,
            strategy="exploration",
        )

    async def run(self, call: ToolCall) -> ToolOutcome:
        params = MemorySearchParams.model_validate(call.params)
        try:
            near = await _try_embed(self._embedder, params.query) if params.query.strip() else None
            candidates = await self._memories.load_candidates(call.context.principal, near)
        except Unavailable as error:
            return ToolOutcome("error", f"Memories can't be read now: {error}")
        labels = {label.casefold() for label in params.labels}
        # 500 memories take 27 ms.
        best_first = await asyncio.to_thread(rank_memories, candidates, params.query)
        ranked = [
            memory for memory in best_first if not labels or labels & {label.casefold() for label in memory.labels}
        ]
        found = ranked[: params.limit]
        if not found:
            return ToolOutcome("ok", f"Nothing was found among {len(candidates)} memories of this user.")
        return ToolOutcome("ok", render_memories(found), data={"memory_ids": [memory.id for memory in found]})
