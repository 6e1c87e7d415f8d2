"""`memory.search`: finds what the person wants remembered for good."""

from importlib.resources import files

from pydantic import BaseModel, ConfigDict, Field

from chat_proc.tools.memory.user_rows import render_memories
from everturn.errors import Unavailable
from everturn.model.commits import Effect
from everturn.model.memory.user_memories import MAX_LABELS, rank_memories
from everturn.ports.memory.embedder import Embedder, EmbedderUnavailable
from everturn.ports.memory.search import QueryVector
from everturn.ports.memory.user_memories import UserMemories
from everturn.ports.tool import ToolCall, ToolOutcome, ToolSpec

DEFAULT_LIMIT = 8
MAX_LIMIT = 20


class MemorySearchParams(BaseModel):
    """Without a query the memories that matter most come; `labels` keeps those that have one of them."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    query: str = Field(default="", max_length=2_000)
    labels: list[str] = Field(default_factory=lambda: [], max_length=MAX_LABELS)
    limit: int = Field(default=DEFAULT_LIMIT, ge=1, le=MAX_LIMIT)


class MemorySearchTool:
    """Compares all of a person's memories; there are few."""

    def __init__(self, memories: UserMemories, embedder: Embedder) -> None:
        self._memories = memories
        self._embedder = embedder
        self.spec = ToolSpec(
            tool_id="memory.search",
            summary="Find what this user wants remembered for good, across conversations.",
            guide=files("chat_proc.tools.memory").joinpath("memory_search.md").read_text(encoding="utf-8"),
            params=MemorySearchParams,
            effect=Effect.PURE,
            strategy="exploration",
        )

    async def run(self, call: ToolCall) -> ToolOutcome:
        params = MemorySearchParams.model_validate(call.params)
        try:
            near = await self._embed(params.query)
            candidates = await self._memories.load_candidates(call.context.principal, near)
        except Unavailable as error:
            return ToolOutcome("error", f"Memories can't be read now: {error}")
        labels = {label.casefold() for label in params.labels}
        ranked = [
            memory
            for memory in rank_memories(candidates, params.query)
            if not labels or labels & {label.casefold() for label in memory.labels}
        ]
        found = ranked[: params.limit]
        if not found:
            return ToolOutcome("ok", f"Nothing fits; there are {len(candidates)} memories of this user.")
        return ToolOutcome("ok", render_memories(found), data={"memory_ids": [memory.id for memory in found]})

    async def _embed(self, query: str) -> QueryVector | None:
        """Words alone will do when the encoder is out of reach."""
        if not query.strip():
            return None
        try:
            (vector,) = await self._embedder.embed([query])
        except EmbedderUnavailable:
            return None
        return QueryVector(self._embedder.name, vector)
