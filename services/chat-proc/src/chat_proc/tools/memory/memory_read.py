"""`memory.read`: memories of the person by their ids, whole."""

from importlib.resources import files

from pydantic import BaseModel, ConfigDict, Field

from chat_proc.tools.memory.user_rows import render_memories
from everturn.errors import Unavailable
from everturn.model.commits import Effect
from everturn.ports.memory.user_memories import UserMemories
from everturn.ports.tool import ToolCall, ToolOutcome, ToolSpec

MAX_IDS = 10


class MemoryReadParams(BaseModel):
    """Ids as `memory.search` and the hotset show them."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    memory_ids: list[str] = Field(min_length=1, max_length=MAX_IDS)


class MemoryReadTool:
    """Says which of the ids there are not."""

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
        lines += [f"There are none with these ids: {', '.join(missing)}."] if missing else []
        return ToolOutcome("ok" if found else "error", "\n".join(lines))
