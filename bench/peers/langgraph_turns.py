"""An agent of langgraph whose model answers at once, with one trivial tool."""

from typing import Any

from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, ToolCall
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import tool
from langgraph.prebuilt import create_react_agent


class InstantModel(BaseChatModel):
    """Calls the tool until it has been called `left` times."""

    left: int = 0

    @property
    def _llm_type(self) -> str:
        return "instant"

    def bind_tools(self, tools: Any, **_: Any) -> Any:
        return self

    def _generate(self, messages: Any, stop: Any = None, run_manager: Any = None, **_: Any) -> ChatResult:
        self.left -= 1
        call = ToolCall(name="echo", args={"text": "again"}, id=f"call-{self.left}", type="tool_call")
        message = AIMessage("", tool_calls=[call]) if self.left else AIMessage("Done.")
        return ChatResult(generations=[ChatGeneration(message=message)])

    async def _agenerate(self, messages: Any, stop: Any = None, run_manager: Any = None, **_: Any) -> ChatResult:
        return self._generate(messages)


@tool
async def echo(text: str) -> str:
    """Says it again."""
    return f"echo: {text}"


MODEL = InstantModel()
AGENT = create_react_agent(MODEL, [echo], prompt="You are the agent.")


async def run_turn(rounds: int) -> None:
    MODEL.left = rounds
    await AGENT.ainvoke({"messages": [("user", "Go on.")]}, {"recursion_limit": 3 * rounds})
    assert MODEL.left == 0
