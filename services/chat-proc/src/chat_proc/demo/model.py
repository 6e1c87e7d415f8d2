"""A LanguageModel that needs no key: it reads the prompt, decides by rules and streams its reply like any other."""

import asyncio
import json
from collections.abc import AsyncGenerator

from chat_proc.demo.prompt import read_conversation
from chat_proc.demo.rules import Answer, ToolRequest, decide
from everturn.models.port import ModelPiece, ModelRequest, ModelTraits, ReplyFinished, TextDelta
from everturn.models.tokens import estimate_usage

_TRAITS = ModelTraits(name="offline", context_tokens=200_000, images=False, documents=False)
_PIECE_CHARS, _MAX_PIECES = 24, 100
_PAUSE_S = 0.005


def build_model(name: str = "offline", *, pause_s: float = _PAUSE_S) -> "DemoModel":
    """The demo, which has only one name; `pause_s` is the time between two pieces of its stream."""
    if name != _TRAITS.name:
        raise ValueError(f"there is only one offline model, not {name!r}")
    return DemoModel(pause_s)


class DemoModel:
    """Deterministic: the same prompt gets the same reply. Its usage is estimated and costs nothing."""

    def __init__(self, pause_s: float) -> None:
        self._pause_s = pause_s

    @property
    def traits(self) -> ModelTraits:
        return _TRAITS

    async def generate(self, request: ModelRequest) -> AsyncGenerator[ModelPiece, None]:
        """Stream the reply in pieces of a few characters, those of programs longer."""
        text = await asyncio.to_thread(_reply, request)
        size = max(_PIECE_CHARS, len(text) // _MAX_PIECES)
        for start in range(0, len(text), size):
            yield TextDelta(text[start : start + size])
            await asyncio.sleep(self._pause_s)
        yield ReplyFinished("stop", estimate_usage(request, len(text)))


def _reply(request: ModelRequest) -> str:
    return render_reply(decide(read_conversation(request)))


def render_reply(reply: ToolRequest | Answer) -> str:
    """The reply in the channel protocol."""
    if isinstance(reply, Answer):
        action = {"action": "complete", "notes": reply.notes, "tool_call": None, "final_answer": reply.text}
        followups = {"suggested_followups": list(reply.followups)}
        return f"<channel:action>{json.dumps(action | followups, ensure_ascii=False)}</channel:action>\n"
    call = {"tool_id": reply.tool_id, "params": reply.params}
    action = {"action": "call_tool", "notes": reply.notes, "tool_call": call, "final_answer": None}
    code = f"\n<channel:code>\n{reply.code}\n</channel:code>" if reply.code else ""
    return f"<channel:action>{json.dumps(action, ensure_ascii=False)}</channel:action>{code}\n"
