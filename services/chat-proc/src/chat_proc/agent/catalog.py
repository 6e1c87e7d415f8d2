"""What the loop needs of the tools: to know them, to check arguments, to call one. The registry implements it."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from pydantic import BaseModel

from everturn.ports.tool import ToolCall, ToolOutcome, ToolSpec


class ToolCatalog(Protocol):
    """The tools offered in this turn, in a stable order."""

    @property
    def specs(self) -> Sequence[ToolSpec]: ...

    def spec(self, tool_id: str) -> ToolSpec:
        """Raises Invalid with a sentence for the model when there is no such tool."""
        ...

    def check_params(self, tool_id: str, params: Mapping[str, object]) -> BaseModel:
        """Raises Invalid with a sentence for the model when the arguments don't fit."""
        ...

    async def run(self, tool_id: str, call: ToolCall) -> ToolOutcome: ...
