"""What answers the calls of programs in tests that need no database, and a tool for programs."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace

from pydantic import BaseModel, ConfigDict, Field

from chat_proc.catalog.call_policy import AddressRules, CallPolicy
from chat_proc.catalog.tool import Tool, ToolCall, ToolOutcome, ToolSpec
from chat_proc.tools.code.program_calls import ProgramDependencies, ProgramTools
from everturn.turns.model import Effect
from everturn_testing.in_memory_platform import MemoryPlatform
from everturn_testing.turns.conversation_reader import MemoryConversationReader
from everturn_testing.turns.effects import MemoryEffects

Act = Callable[[ToolCall], ToolOutcome]


def build_parts(platform: MemoryPlatform | None = None) -> ProgramDependencies:
    """Over an empty effect ledger; calls that are not pure need the platform of their lease."""
    platform = platform or MemoryPlatform()
    return ProgramDependencies(MemoryEffects(platform), CallPolicy(AddressRules(), MemoryConversationReader(platform)))


def build_program_tools(tools: Sequence[Tool] = (), platform: MemoryPlatform | None = None) -> ProgramTools:
    """These tools for programs; none unless reported."""
    return ProgramTools(tools, build_parts(platform))


class Params(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    text: str = Field(default="", max_length=20)


class ScriptedTool:
    """Follows its parameters; `hangs` until its task is cancelled, and `deaf` also after that."""

    def __init__(self, name: str = "demo.echo", act: Act | None = None, **spec: object) -> None:
        given = ToolSpec(name, "Says it again.", "", Params, Effect.PURE, in_programs=True)
        self.spec = replace(given, **spec)  # pyright: ignore[reportArgumentType] what a test names
        self.act = act or (lambda call: ToolOutcome("ok", "", value={"said": Params.model_validate(call.params).text}))
        self.hangs = False
        self.cancelled = 0
        self.started = asyncio.Event()
        self.done = 0

    async def run(self, call: ToolCall) -> ToolOutcome:
        self.started.set()
        if self.hangs:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                self.cancelled += 1
                raise
        self.done += 1
        return self.act(call)
