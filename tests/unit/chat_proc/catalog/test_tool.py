"""What a tool says of itself, and what a call gives."""

from pydantic import BaseModel

from chat_proc.catalog.tool import ToolOutcome, ToolSpec
from everturn.turns.model import Effect


class NoParams(BaseModel):
    pass


def test_a_tool_is_cancellable_and_has_no_code_by_default() -> None:
    spec = ToolSpec("io.read", "Reads.", "Reads a file.", NoParams, Effect.PURE)

    assert (spec.takes_code, spec.cancellable) == (False, True)
    assert spec.timeout_s > 0


def test_an_outcome_needs_only_a_text() -> None:
    outcome = ToolOutcome("ok", "done")

    assert (outcome.artifacts, outcome.records, outcome.data) == ((), (), None)
