"""Model replies as a model would write them: in the channel protocol, and in the form of each codec."""

import json
from typing import Any

from everturn.models.port import CodecName
from everturn_testing.models.scripted_model import Call, Script


def call(tool_id: str, params: dict[str, Any], *, notes: str = "", thinking: str = "", code: str = "") -> str:
    """A round that calls a tool."""
    action = {"action": "call_tool", "notes": notes, "tool_call": {"tool_id": tool_id, "params": params}}
    program = f"<channel:code>\n{code}\n</channel:code>" if code else ""
    return _think(thinking) + _act(action) + program


def answer(
    text: str, *, notes: str = "", thinking: str = "", followups: tuple[str, ...] = (), summary: str = ""
) -> str:
    """A round that ends the turn."""
    action: dict[str, Any] = {"action": "complete", "notes": notes, "final_answer": text}
    if followups:
        action["suggested_followups"] = list(followups)
    return _think(thinking) + _act(action) + (f"<channel:summary>{summary}</channel:summary>" if summary else "")


def cut_answer(text: str) -> str:
    """An answer whose JSON never ends."""
    return '<channel:action>{"action": "complete", "final_answer": ' + json.dumps(text)[:-1]


NONSENSE = "<channel:action>this is no JSON</channel:action>"


def _think(text: str) -> str:
    return f"<channel:thinking>{text}</channel:thinking>" if text else ""


def _act(action: dict[str, Any]) -> str:
    return f"<channel:action>{json.dumps(action)}</channel:action>"


def call_in(codec: CodecName, tool_id: str, params: dict[str, Any]) -> Script:
    """A reply that calls a tool in the form of a codec."""
    match codec:
        case "channels":
            return call(tool_id, params)
        case "native":
            return [Call(tool_id.replace(".", "__"), json.dumps(params))]
        case "json":
            return json.dumps({"action": "tool_call", "tool": tool_id, "args": params})


def answer_in(codec: CodecName, text: str) -> Script:
    """A reply that ends the turn in the form of a codec."""
    match codec:
        case "channels":
            return answer(text)
        case "native":
            return text
        case "json":
            return json.dumps({"action": "final_answer", "answer": text})
