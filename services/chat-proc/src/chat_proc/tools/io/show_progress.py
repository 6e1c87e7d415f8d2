"""`io_tools.show_progress`: a program says to the person what it is at."""

from pydantic import BaseModel, ConfigDict, Field

from everturn.model.commits import Effect
from everturn.ports.tool import ToolCall, ToolOutcome, ToolSpec
from everturn.tools.emitting import ToolEvents


class ShowProgressParams(BaseModel):
    """One line."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    text: str = Field(min_length=1, max_length=500)


class ShowProgressTool:
    """Tells clients; nothing keeps it."""

    spec = ToolSpec(
        tool_id="io_tools.show_progress",
        summary="Shows the person a line about what the program is doing now.",
        guide="",
        params=ShowProgressParams,
        effect=Effect.PURE,
        in_loop=False,
        in_programs=True,
        returns="an empty text",
    )

    async def run(self, call: ToolCall) -> ToolOutcome:
        text = ShowProgressParams.model_validate(call.params).text
        ToolEvents(call, self.spec.tool_id).progress(text)
        return ToolOutcome("ok", "")
