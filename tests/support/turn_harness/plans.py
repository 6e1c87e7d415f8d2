"""Turns that are plans of steps, with a model that replies by what it is asked."""

import json
import re
from collections.abc import AsyncGenerator, Callable
from typing import Any

from chat_proc.agent.kit import TurnLimits
from everturn.models.port import ModelPiece, ModelRequest, TextPart
from everturn.timeline.blocks import StepResultBody
from everturn_testing.models.scripted_model import Script, ScriptedModel
from turn_harness.harness import Bench
from turn_harness.replies import answer, call
from turn_harness.tools import DemoTool

NEEDS = {"a": "", "b": "a", "c": "a", "d": "bc", "e": "", "f": "e"}
"""A diamond, and a chain beside it."""
Reply = Callable[[str, str], Script]


def plan(needs: dict[str, str], **more: Any) -> str:
    steps = [
        {"id": step, "task": f"Do {step}.", "depends_on": list(on), **more.get(step, {})} for step, on in needs.items()
    ]
    return json.dumps({"steps": steps})


def judge(decision: str = "continue", needs: dict[str, str] | None = None) -> str:
    steps = json.loads(plan(needs or {}))["steps"]
    return json.dumps({"decision": decision, "reason": "As planned.", **({"steps": steps} if needs else {})})


class RoutedModel(ScriptedModel):
    """Replies by what it is asked, so lanes can call it in any order: `of_step` gets a step's id and its request."""

    def __init__(self, *, planned: Reply, judged: Reply, of_step: Reply, answered: Reply, chunk_chars: int) -> None:
        super().__init__(chunk_chars=chunk_chars)
        self._replies = {"You plan": planned, "You supervise": judged, "You write an assistant's answer": answered}
        self._of_step = of_step

    async def generate(self, request: ModelRequest) -> AsyncGenerator[ModelPiece, None]:
        self._scripts[len(self.requests) :] = [self._choose(request)]
        async for piece in super().generate(request):
            yield piece

    def _choose(self, request: ModelRequest) -> Script:
        text = read(request)
        for beginning, reply in self._replies.items():
            if text.startswith(beginning):
                return reply("", text)
        task = re.search(r"Your task:\n\nDo (\w+)\.", text)
        return self._of_step(task[1], text) if task else answer("Answered in a loop.")


def read(request: ModelRequest) -> str:
    return "\n".join(part.text for message in request.messages for part in message.parts if isinstance(part, TextPart))


def work_on(step: str, text: str) -> Script:
    """Call the tool once, then give the result."""
    return (
        answer(f"Result of {step}.") if f"echo: {step}" in text else call("demo.echo", {"text": step}, thinking="Hm.")
    )


def build_dag_bench(
    *,
    planned: Reply | str | None = None,
    judged: Reply | str | None = None,
    of_step: Reply = work_on,
    answered: Reply | str = "All is done.",
    chunk_chars: int = 10_000,
    tools: tuple[DemoTool, ...] = (),
    **more: Any,
) -> Bench:
    def always(reply: Reply | str) -> Reply:
        return (lambda _step, _text: reply) if isinstance(reply, str) else reply

    model = RoutedModel(
        planned=always(planned or plan(NEEDS)),
        judged=always(judged or judge()),
        of_step=of_step,
        answered=always(answered),
        chunk_chars=chunk_chars,
    )
    more = {"limits": TurnLimits(rounds=100), **more}
    return Bench(model=model, tools=tools or (DemoTool(strategy="exploration"),), workflow="dag", **more)


def results(bench: Bench) -> dict[str, str]:
    return {block.body.step: block.body.status for block in bench.blocks if isinstance(block.body, StepResultBody)}
