"""Turns that are plans of steps, with a model that replies by what it is asked."""

import asyncio
import json
import re
from collections.abc import AsyncGenerator, Callable
from typing import Any

from chat_proc.agent.kit import TurnLimits
from everturn.models.port import ModelPiece, ModelRequest, TextPart
from everturn.timeline.blocks import Block, CompletionBody, RoundStartBody, StepResultBody
from everturn_testing.models.scripted_model import Pause, Say, Script, ScriptedModel
from turn_harness.checks import check_conversation
from turn_harness.harness import Bench, BenchWorker, until
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


def result_text(bench: Bench, step: str) -> str:
    found = [block.body for block in bench.blocks if isinstance(block.body, StepResultBody)]
    return next(body.text for body in found if body.step == step)


def lane_blocks(bench: Bench, step: str) -> list[Block]:
    starts = [block for block in bench.blocks if isinstance(block.body, RoundStartBody)]
    rounds = {block.round for block in starts if isinstance(block.body, RoundStartBody) and block.body.lane == step}
    return [block for block in bench.blocks if block.round in rounds]


def step_requests(bench: Bench, step: str) -> list[str]:
    return [text for text in map(read, bench.model.requests) if f"Your task:\n\nDo {step}." in text]


async def check_turn(bench: Bench, *, ends_may_repeat: bool = False) -> None:
    """Every step has one result, in an order that its dependencies allow, and one answer ends the turn."""
    await check_conversation(bench, ends_may_repeat=ends_may_repeat)
    ended = [block.body.step for block in bench.blocks if isinstance(block.body, StepResultBody)]
    assert len(ended) == len(set(ended))
    for step in ended:
        assert set(NEEDS.get(step, "")) <= set(ended[: ended.index(step)]), ended
    assert bench.texts(CompletionBody) == ["All is done."]


async def interrupt_steps(bench: Bench, *, when: int = 2) -> tuple[BenchWorker, asyncio.Task[None]]:
    """A worker whose steps hang in their model calls."""
    worker = bench.hire()
    task = asyncio.create_task(worker.work())
    await until(lambda: bench.model.unfinished == when)
    for _ in range(200):
        await asyncio.sleep(0)
    return worker, task


def hang(_step: str, _text: str) -> Script:
    return [Say("<channel:thinking>Let me"), Pause(asyncio.Event())]
