"""An agent for `langgraph dev` whose model answers with 200 tokens at once."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langgraph.graph import END, START, MessagesState, StateGraph

TOKEN, TOKENS = "tok~ ", 200


class InstantModel(BaseChatModel):
    """Streams its tokens without waiting for anything."""

    @property
    def _llm_type(self) -> str:
        return "instant"

    def _generate(self, messages: Any, stop: Any = None, run_manager: Any = None, **_: Any) -> ChatResult:
        return ChatResult(generations=[ChatGeneration(message=AIMessage(content=TOKEN * TOKENS))])

    async def _astream(
        self, messages: Any, stop: Any = None, run_manager: Any = None, **_: Any
    ) -> AsyncIterator[ChatGenerationChunk]:
        for _ in range(TOKENS):
            chunk = ChatGenerationChunk(message=AIMessageChunk(content=TOKEN))
            if run_manager:
                await run_manager.on_llm_new_token(TOKEN, chunk=chunk)
            yield chunk
            await asyncio.sleep(0)


MODEL = InstantModel()


async def answer(state: MessagesState) -> dict[str, Any]:
    return {"messages": [await MODEL.ainvoke(state["messages"])]}


builder = StateGraph(MessagesState)
builder.add_node("answer", answer)
builder.add_edge(START, "answer")
builder.add_edge("answer", END)
graph = builder.compile()
