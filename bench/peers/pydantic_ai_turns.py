"""An agent of pydantic-ai whose model answers at once, with one trivial tool."""

from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.usage import UsageLimits


async def run_turn(rounds: int) -> None:
    left = rounds

    async def decide(_: list[ModelMessage], __: AgentInfo) -> ModelResponse:
        nonlocal left
        left -= 1
        return ModelResponse(parts=[ToolCallPart("echo", {"text": "again"}) if left else TextPart("Done.")])

    with AGENT.override(model=FunctionModel(decide)):
        await AGENT.run("Go on.", usage_limits=UsageLimits(request_limit=None))
    assert left == 0


AGENT = Agent(instructions="You are the agent.")


@AGENT.tool_plain
async def echo(text: str) -> str:
    """Says it again."""
    return f"echo: {text}"
