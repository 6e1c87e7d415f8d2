"""`memory.write`: keeps, changes or forgets one thing the person wants remembered for good."""

from dataclasses import replace
from datetime import datetime
from importlib.resources import files

from pydantic import BaseModel, ConfigDict, Field, model_validator

from everturn.errors import Conflict, Unavailable
from everturn.model.commits import Effect
from everturn.model.identity import Principal
from everturn.model.memory.user_memories import (
    MAX_LABEL_CHARS,
    MAX_LABELS,
    MAX_MEMORY_CHARS,
    UserMemory,
    make_memory_id,
)
from everturn.ports.memory.embedder import Embedder, EmbedderUnavailable
from everturn.ports.memory.search import QueryVector
from everturn.ports.memory.user_memories import ForgottenByOwner, UserMemories
from everturn.ports.tool import ToolCall, ToolContext, ToolOutcome, ToolSpec


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
            raise ValueError("give a text, or the memory_id of what is to be forgotten")
        if any(not 0 < len(label.strip()) <= MAX_LABEL_CHARS for label in self.labels or ()):
            raise ValueError(f"a label has 1 to {MAX_LABEL_CHARS} characters")
        return self


class MemoryWriteTool:
    """The id follows from the text, so the same call twice writes one row."""

    def __init__(self, memories: UserMemories, embedder: Embedder) -> None:
        self._memories = memories
        self._embedder = embedder
        self.spec = ToolSpec(
            tool_id="memory.write",
            summary="Remember something about this user for good, change it, or forget it.",
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
                "error", "Nothing was saved: the person has just deleted this memory. Do not save it again."
            )
        except Conflict as full:
            return ToolOutcome("error", f"Nothing was kept: {full.detail} Forget one that is of no use any more.")
        except Unavailable as error:
            return ToolOutcome("error", f"Nothing was kept: {error}")

    async def _forget(self, who: Principal, params: MemoryWriteParams) -> ToolOutcome:
        memory_id = params.memory_id or make_memory_id(params.text)
        if await self._memories.forget(who, memory_id):
            return ToolOutcome("ok", f"Forgotten: {memory_id}.")
        return ToolOutcome("ok", f"There is no memory {memory_id!a}; nothing had to be forgotten.")

    async def _write(self, params: MemoryWriteParams, context: ToolContext) -> ToolOutcome:
        who, now = context.principal, datetime.fromisoformat(context.now)
        text = " ".join(params.text.split())
        memory_id = make_memory_id(text)
        known = {memory.id: memory for memory in await self._memories.load(who, [memory_id, params.memory_id])}
        before = known.get(params.memory_id) or known.get(memory_id) or UserMemory(memory_id, text, now, now)
        memory = _change(replace(before, id=memory_id, text=text, updated_at=now), params)
        vector = await self._embed(text)
        await self._memories.save(who, memory, vector, turn_id=context.turn_id, instead_of=params.memory_id)
        if params.memory_id and params.memory_id != memory_id:
            # Last, so that a crash between the two leaves one too many and not one too few.
            await self._memories.forget(who, params.memory_id)
        return ToolOutcome("ok", f"Kept as {memory_id}.", data={"memory_id": memory_id})

    async def _embed(self, text: str) -> QueryVector | None:
        """Without the encoder the memory is found by its words."""
        try:
            (vector,) = await self._embedder.embed([text])
        except EmbedderUnavailable:
            return None
        return QueryVector(self._embedder.name, vector)


def _change(memory: UserMemory, params: MemoryWriteParams) -> UserMemory:
    """What is not given stays as it was."""
    labels = memory.labels if params.labels is None else tuple(dict.fromkeys(label.strip() for label in params.labels))
    return replace(
        memory,
        labels=labels,
        pinned=memory.pinned if params.pinned is None else params.pinned,
        confidence=memory.confidence if params.confidence is None else params.confidence,
        salience=memory.salience if params.salience is None else params.salience,
    )
