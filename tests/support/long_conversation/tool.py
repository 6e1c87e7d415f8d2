"""The one tool of the session's own: it gives a report of any length."""

from pydantic import BaseModel, ConfigDict

from chat_proc.catalog.tool import ToolCall, ToolOutcome, ToolSpec
from everturn.turns.model import Effect
from long_conversation.workload import Place, World, build_report


class ReportParams(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    turn: int
    number: int


class ReportTool:
    """A fact that is planted in a result is in the third one of its turn."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.spec = ToolSpec(
            tool_id="sim.report",
            summary="A report.",
            guide="Give turn and number.",
            params=ReportParams,
            effect=Effect.PURE,
            strategy="exploration",
        )

    async def run(self, call: ToolCall) -> ToolOutcome:
        params = ReportParams.model_validate(call.params)
        fact = self._world.fact_of(params.turn) if params.number == 3 else None
        if fact is None or fact.place not in (Place.SMALL_RESULT, Place.LARGE_RESULT):
            chars = self._world.result_chars(params.turn, params.number)
            return ToolOutcome("ok", build_report(chars, turn=params.turn, number=params.number, fact=None))
        chars = 1_000_000 if fact.place is Place.LARGE_RESULT else 2_000
        return ToolOutcome("ok", build_report(chars, turn=params.turn, number=params.number, fact=fact))
