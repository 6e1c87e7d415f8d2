"""The replies of a model that does every task of the check of models, in the form of each codec."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from turn_harness.replies import answer, call

from chat_proc.model_check.tasks import DOCUMENT, PROGRAM
from everturn.models.port import CodecName
from everturn_testing.models.scripted_model import Call, Script

CODE = "exec_tools.execute_code_python"
PERSON = json.dumps({"name": "Marta Lind", "age": 34})
"""The reply to the structured call."""


@dataclass(frozen=True)
class Meant:
    """What the model wants: calls of tools with their parameters, or an answer."""

    text: str = ""
    calls: Sequence[tuple[str, Mapping[str, Any]]] = ()
    code: str = ""
    native_calls: Sequence[tuple[str, Mapping[str, Any]]] = field(default=())
    """Further calls in a reply that can have several."""


def order(number: int, *, with_items: bool = False) -> tuple[str, Mapping[str, Any]]:
    return "orders.find", {"order": number, "with_items": with_items}


RIGHT: Mapping[int, Meant] = {
    1: Meant("The capital of France is Paris."),
    2: Meant("Die Hauptstadt von Italien heißt Rom."),
    3: Meant(calls=[order(4711, with_items=True)]),
    4: Meant(calls=[order(1001)], native_calls=[order(1002)]),
    5: Meant("The total is **129.40 EUR**."),
    6: Meant(calls=[(CODE, {"contract": []})], code=PROGRAM),
    7: Meant(calls=[("react.write", {"path": "files/deploy.md", "channel": "canvas", "content": DOCUMENT})]),
    8: Meant("Bonjour!"),
    9: Meant(calls=[order(4711)]),
    11: Meant(", ".join([f"number {n}" for n in range(1, 40)]) + ", forty"),
    12: Meant("Red."),
}
"""By the number of the task."""


def write_reply(codec: CodecName, meant: Meant) -> Script:
    """The reply of a model that follows the codec."""
    match codec:
        case "native":
            if not meant.calls:
                return meant.text
            program = {"code": meant.code} if meant.code else {}
            return [
                Call(tool_id.replace(".", "__"), json.dumps({**params, **program}))
                for tool_id, params in (*meant.calls, *meant.native_calls)
            ]
        case "channels":
            if not meant.calls:
                return answer(meant.text, thinking="I know it.")
            tool_id, params = meant.calls[0]
            return call(tool_id, dict(params), thinking="A tool is needed.", code=meant.code)
        case "json":
            if not meant.calls:
                return json.dumps({"action": "final_answer", "answer": meant.text, "reasoning": "I know it."})
            tool_id, params = meant.calls[0]
            program = {"code": meant.code} if meant.code else {}
            return json.dumps({"action": "tool_call", "tool": tool_id, "args": {**params, **program}})
