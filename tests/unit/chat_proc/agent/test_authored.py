"""Turns that an author's workflow runs: one answer, steps and tasks that are not repeated, and failures that end it."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import suppress
from dataclasses import replace
from itertools import groupby
from typing import Any

import pytest
from turn_harness.authored import LocalWorkflow, WorkerLost
from turn_harness.checks import check_conversation
from turn_harness.harness import ANN, Bench, until
from turn_harness.plans import read
from turn_harness.replies import answer, call
from turn_harness.tools import DemoTool

from chat_proc.agent.kit import TurnLimits
from chat_proc.catalog.tool import ToolCall, ToolOutcome
from chat_proc.tools.memory.memsearch import MemsearchParams
from everturn.core.loops import LOOPS
from everturn.models.port import ModelFailed, ModelPiece, ModelRequest
from everturn.timeline.blocks import (
    ApprovalRequestBody,
    BlockType,
    CompletionBody,
    DurableStepBody,
    SegmentBody,
    ToolResultBody,
)
from everturn.timeline.turns import Outcome, SignalKind, TurnStatus
from everturn.turns.inbox import IncomingSignal
from everturn.turns.model import Effect
from everturn_sdk import BaseWorkflow, Payload, StepAmbiguous, StepFailed, WorkflowError
from everturn_sdk.protocol import Question
from everturn_testing.models.scripted_model import Fail, ScriptedModel

HELLO = answer("Hello!")


class SaysByTask(ScriptedModel):
    """Answers by the task that it was given last, so that a repeated call gets the same answer."""

    async def generate(self, request: ModelRequest) -> AsyncGenerator[ModelPiece, None]:
        self._scripts[len(self.requests) :] = [SECOND if "Check ticket" in read(request) else FIRST]
        async for piece in super().generate(request):
            yield piece


class Plain(BaseWorkflow):
    async def run(self, payload: Payload) -> Any:
        react = await self.build_react(scratchpad=self.scratchpad)
        return await react.run(payload)


def build(kind: type[BaseWorkflow], *scripts: Any, **more: Any) -> Bench:
    return Bench(*scripts, authored=LocalWorkflow(kind()), tools=[DemoTool()], **more)


async def play(kind: type[BaseWorkflow], *scripts: Any, text: str = "Hi", **more: Any) -> Bench:
    bench = build(kind, *scripts, **more)
    await bench.say(text)
    await bench.work()
    await check_conversation(bench)
    return bench


def recorded(bench: Bench) -> list[DurableStepBody]:
    return [block.body for block in bench.blocks if isinstance(block.body, DurableStepBody)]


async def test_a_workflow_that_returns_the_agents_answer_is_an_ordinary_turn():
    bench = await play(Plain, call("demo.echo", {"text": "x"}), HELLO, tick_ms=0)
    plain = Bench(call("demo.echo", {"text": "x"}), HELLO, tools=[DemoTool()], tick_ms=0)
    await plain.say("Hi")
    await plain.work()

    assert [kind for kind in bench.types if kind != BlockType.WORKFLOW_END] == plain.types
    assert [read(request) for request in bench.model.requests] == [read(request) for request in plain.model.requests]
    # The title comes when its model has answered, and pieces of text that come together are one event.
    shown = [
        [kind for kind, _ in groupby(event.type for event in events if not event.type.startswith("conv."))]
        for events in (await bench.published(), await plain.published())
    ]
    assert shown[0] == shown[1]


class Keeps(Plain):
    async def run(self, payload: Payload) -> Any:
        await (await self.build_react()).run(payload)


class Signs(Plain):
    async def run(self, payload: Payload) -> Any:
        return f"{(await (await self.build_react()).run(payload)).text} Yours, Desk"


class Alone(Plain):
    async def run(self, payload: Payload) -> Any:
        return f"You said {payload.text}."


@pytest.mark.parametrize(("kind", "shown"), [(Keeps, "Hello!"), (Signs, "Hello! Yours, Desk"), (Alone, "You said Hi.")])
async def test_what_run_returns_is_the_one_answer(kind: type[BaseWorkflow], shown: str):
    bench = await play(kind, HELLO)

    assert bench.exits[0].outcome is Outcome.COMPLETED
    assert bench.texts(CompletionBody) == [shown]
    assert [text.text for text in bench.state().turns[0].texts if text.channel == "answer"] == [shown]


class Desk(BaseWorkflow):
    """Three steps and two tasks."""

    def __init__(self) -> None:
        super().__init__()
        self.effects: list[str] = []

    def _do(self, what: str) -> dict[str, str]:
        self.effects.append(what)
        return {"id": what}

    async def run(self, payload: Payload) -> Any:
        react = await self.build_react()
        try:
            ticket = await self.step("open", self._do, "open")
        except StepAmbiguous:
            ticket = {"id": "unknown"}
        first = await react.run(payload)
        await self.step("note", self._do, f"note {first.text}", effect="idempotent")
        second = await react.run(f"Check ticket {ticket['id']}.")
        with suppress(StepAmbiguous):
            await self.step("mail", self._do, f"mail {second.text}")
        return second


FIRST, SECOND = answer("First."), answer("Second.")
EFFECTS = ["open", "note First.", "mail Second."]


async def test_steps_and_tasks_run_in_order_and_leave_one_answer_each():
    bench = await play(Desk, call("demo.echo", {"text": "x"}), FIRST, SECOND)

    assert bench.texts(CompletionBody) == ["First.", "Second."]
    view = bench.state().turns[0]
    assert (view.outcome, view.answer) == ("completed", "Second.")
    assert [text.text for text in view.texts if text.channel == "answer"] == ["First.", "Second."]
    assert [block.body.number for block in bench.blocks if isinstance(block.body, SegmentBody)] == [2]
    assert "Check ticket open." in read(bench.model.requests[-1])
    assert "First." in read(bench.model.requests[-1])
    assert [(body.key, body.state) for body in recorded(bench)] == [
        ("open", "begun"),
        ("open", "done"),
        ("note", "done"),
        ("mail", "begun"),
        ("mail", "done"),
    ]


async def test_a_worker_that_dies_anywhere_repeats_no_step_and_no_answer():
    steps = 0
    while True:
        steps += 1
        workflow = Desk()
        bench = Bench(*[FIRST, SECOND] * 3, tools=[DemoTool()], authored=LocalWorkflow(workflow))
        bench.model = SaysByTask()
        await bench.say("Hi")
        worker = bench.hire(dies_at=steps)
        await worker.work()
        if not worker.gate.dead.is_set():
            break
        bench.expire_lease()
        await bench.work()

        await check_conversation(bench, ends_may_repeat=True)
        for key, effect in (("open", "open"), ("mail", "mail Second.")):
            states = [body.state for body in recorded(bench) if body.key == key]
            # Without a result it is unknown whether the worker died before the call or after it.
            assert states in (["begun", "done"], ["begun"]), steps
            assert workflow.effects.count(effect) in ((1,) if "done" in states else (0, 1)), steps
        assert workflow.effects.count("note First.") in (1, 2), steps
        assert bench.texts(CompletionBody) == ["First.", "Second."], steps
        assert bench.exits[0].outcome is Outcome.COMPLETED
    assert steps > 20


class Judge(Plain):
    async def run(self, payload: Payload) -> Any:
        await self.feedback("neutral", "Before.")
        result = await (await self.build_react()).run(payload)
        await self.feedback("ok", f"Checked {result.text}", confidence=0.9, key="check")
        return f"{result.text} Checked."


async def test_feedback_is_stored_with_the_answer_that_it_judges():
    bench = await play(Judge, HELLO)

    given = bench.platform.conversations[bench.conversation_id].feedback
    assert [(each.origin, each.reaction, each.text, each.confidence) for each in given] == [
        ("machine", "neutral", "Before.", None),
        ("machine", "ok", "Checked Hello!", 0.9),
    ]
    assert bench.texts(CompletionBody) == ["Hello! Checked."]
    assert [(body.kind, body.key) for body in recorded(bench)] == [("feedback", "1"), ("feedback", "check")]


async def test_feedback_is_given_once_wherever_a_worker_dies():
    steps = 0
    while True:
        steps += 1
        bench = Bench(*[HELLO] * 3, tools=[DemoTool()], authored=LocalWorkflow(Judge()))
        await bench.say("Hi")
        worker = bench.hire(dies_at=steps)
        await worker.work()
        if not worker.gate.dead.is_set():
            break
        bench.expire_lease()
        await bench.work()

        await check_conversation(bench, ends_may_repeat=True)
        given = bench.platform.conversations[bench.conversation_id].feedback
        assert [each.text for each in given] == ["Before.", "Checked Hello!"], steps
        assert bench.texts(CompletionBody) == ["Hello! Checked."], steps
    assert steps > 5


class JudgesTooOften(BaseWorkflow):
    async def run(self, payload: Payload) -> Any:
        said: list[str] = []
        for key in ("a", "a", *map(str, range(20))):
            try:
                await self.feedback("ok", key=key)
            except WorkflowError as error:
                said.append(str(error))
        try:
            await self.feedback("good")  # pyright: ignore[reportArgumentType]
        except WorkflowError as error:
            said.append(str(error))
        return " ".join(said)


async def test_feedback_has_limits():
    (text,) = (await play(JudgesTooOften)).texts(CompletionBody)

    assert text == (
        "Two calls of self.feedback have the key 'a'. Give each call of a turn a key of its own. "
        "A turn can have at most 20 calls of self.feedback. reaction: Input should be 'ok', 'not_ok' or 'neutral'."
    )


class Twice(BaseWorkflow):
    async def run(self, payload: Payload) -> Any:
        await self.step("a", str)
        await self.step("a", str)


class Raises(BaseWorkflow):
    async def run(self, payload: Payload) -> Any:
        raise ValueError("It is broken.")


class RaisesLater(Plain):
    async def run(self, payload: Payload) -> Any:
        await (await self.build_react()).run(payload)
        raise ValueError("It is broken.")


class RaisesAfterStep(Plain):
    async def run(self, payload: Payload) -> Any:
        await (await self.build_react()).run(payload)
        await self.step("a", str)
        raise ValueError("It is broken.")


class Empty(BaseWorkflow):
    async def run(self, payload: Payload) -> Any:
        return None


class Blank(BaseWorkflow):
    async def run(self, payload: Payload) -> Any:
        return " "


class Odd(BaseWorkflow):
    async def run(self, payload: Payload) -> Any:
        return 42


class Long(BaseWorkflow):
    async def run(self, payload: Payload) -> Any:
        return "x" * 200_001


class Hangs(BaseWorkflow):
    async def run(self, payload: Payload) -> Any:
        await asyncio.Event().wait()


class Crashes(BaseWorkflow):
    async def run(self, payload: Payload) -> Any:
        raise WorkerLost


FAILING = [
    (Twice, "It raised an exception."),
    (Raises, "It raised an exception."),
    (Empty, "It gave no answer."),
    (Blank, "It gave no answer."),
    (Odd, "It raised an exception."),
    (Crashes, "Its process ended."),
    (Long, "Its answer is too long."),
]


@pytest.mark.parametrize(("kind", "why"), FAILING)
async def test_a_workflow_without_an_answer_ends_its_turn_with_a_problem(kind: type[BaseWorkflow], why: str):
    bench = await play(kind)

    (end,) = bench.exits
    assert end.error is not None
    assert (end.error.type.rpartition(":")[2], (end.error.detail or "").startswith(why)) == ("workflow-failed", True)


@pytest.mark.parametrize("kind", [RaisesLater, RaisesAfterStep])
async def test_a_workflow_that_fails_after_an_answer_leaves_that_answer(kind: type[BaseWorkflow]):
    bench = await play(kind, HELLO)

    (end,) = bench.exits
    assert (end.outcome, end.cut_reason) == (Outcome.CUT, "server_error")
    assert bench.state().turns[0].answer == "Hello!"


async def test_a_workflow_that_hangs_is_ended_at_the_time_limit():
    bench = await play(Hangs, limits=TurnLimits(wall_time_s=0.0), grace_s=0.05)

    assert bench.exits[0].error is not None
    assert "time limit" in (bench.exits[0].error.detail or "")


class CrashesOnce(Plain):
    runs = 0

    async def run(self, payload: Payload) -> Any:
        result = await (await self.build_react()).run(payload)
        type(self).runs += 1
        if type(self).runs == 1:
            raise WorkerLost
        return result


async def test_a_lost_process_is_replaced_and_the_answer_is_kept():
    bench = await play(CrashesOnce, HELLO)

    assert bench.exits[0].outcome is Outcome.COMPLETED
    assert bench.texts(CompletionBody) == ["Hello!"]
    assert len(bench.model.requests) == 1


class Waits(BaseWorkflow):
    """Answers, then works on something of its own until it may go on."""

    def __init__(self) -> None:
        super().__init__()
        self.go = asyncio.Event()

    async def run(self, payload: Payload) -> Any:
        react = await self.build_react()
        await react.run(payload)
        await self.step("wait", self.go.wait, effect="pure")
        return await react.run("Go on.")


@pytest.mark.parametrize(
    ("kind", "outcome"), [(SignalKind.CANCEL, Outcome.CANCELLED), (SignalKind.STEER, Outcome.STOPPED)]
)
async def test_a_person_can_end_the_turn_while_the_workflow_works(kind: SignalKind, outcome: Outcome):
    workflow = LocalWorkflow(Waits())
    bench = Bench(HELLO, authored=workflow)
    await bench.say("Hi")
    working = asyncio.create_task(bench.work())
    await until(lambda: BlockType.SEGMENT_END in [block.type for block in bench.blocks])

    await bench.signal(kind)
    await working

    assert [end.outcome for end in bench.exits] == [outcome]
    assert bench.state().turns[0].answer == "Hello!"
    assert len(workflow.ended) == workflow.runs == 1
    await check_conversation(bench)


async def test_a_message_during_the_work_is_answered_in_the_next_task():
    workflow = Waits()
    bench = Bench(HELLO, answer("Both."), authored=LocalWorkflow(workflow))
    await bench.say("Hi")
    working = asyncio.create_task(bench.work())
    await until(lambda: BlockType.SEGMENT_END in [block.type for block in bench.blocks])
    await bench.signal(SignalKind.FOLLOWUP, "And this?")
    workflow.go.set()
    await working

    assert bench.texts(CompletionBody) == ["Hello!", "Both."]
    assert "And this?" in read(bench.model.requests[-1])
    await check_conversation(bench)


class Slow(Plain):
    """Returns only when it may."""

    def __init__(self) -> None:
        super().__init__()
        self.go, self.answered = asyncio.Event(), asyncio.Event()

    async def run(self, payload: Payload) -> Any:
        result = await (await self.build_react()).run(payload)
        self.answered.set()
        await self.go.wait()
        return result


@pytest.mark.parametrize("dies", [False, True])
async def test_a_message_after_the_answer_is_answered_by_the_agent_alone(dies: bool):
    workflow = Slow()
    local = LocalWorkflow(workflow)
    bench = Bench(HELLO, answer("Both."), answer("Both."), authored=local)
    await bench.say("Hi")
    worker = bench.hire()
    working = asyncio.create_task(worker.work())
    await until(workflow.answered.is_set)
    await bench.signal(SignalKind.FOLLOWUP, "And this?")
    if dies:
        # Right after the commit with the deferral.
        until_dead = asyncio.create_task(until(lambda: BlockType.DEFERRAL in [block.type for block in bench.blocks]))
        until_dead.add_done_callback(lambda _: worker.gate.dead.set())
    workflow.go.set()
    await working
    if dies:
        bench.expire_lease()
        await bench.work()

    assert local.runs == 1
    assert bench.state().turns[0].answer == "Both."
    assert bench.texts(CompletionBody) == ["Hello!", "Both."]
    await check_conversation(bench, ends_may_repeat=dies)


async def test_a_draining_worker_leaves_the_workflow_between_steps_to_the_next_one():
    workflow = Waits()
    local = LocalWorkflow(workflow)
    bench = Bench(HELLO, answer("Done."), authored=local)
    await bench.say("Hi")
    worker = bench.hire()
    working = asyncio.create_task(worker.run_one())
    await until(lambda: BlockType.SEGMENT_END in [block.type for block in bench.blocks])
    assert worker.current is not None
    worker.current.request_handover()
    workflow.go.set()
    await working
    assert bench.exits == []
    await bench.work()

    assert local.runs == 2
    assert bench.texts(CompletionBody) == ["Hello!", "Done."]
    assert len(bench.model.requests) == 2
    await check_conversation(bench)


class Sends(Desk):
    async def run(self, payload: Payload) -> Any:
        react = await self.build_react()
        await self.step("open", self._do, "open")
        result = await react.run(payload)
        await self.step("mail", self._do, "mail")
        return result


@pytest.mark.parametrize("dies_at", [None, *range(2, 40, 3)])
async def test_a_turn_waits_for_an_approval_without_its_workflow(dies_at: int | None):
    workflow = Sends()
    local = LocalWorkflow(workflow)
    send = DemoTool("demo.send", effect=Effect.IRREVERSIBLE, requires_approval=True)
    bench = Bench(call("demo.send", {"text": "x"}), HELLO, HELLO, tools=[send], authored=local)
    await bench.say("Hi")
    await bench.work()
    assert bench.turn_rows[0].status is TurnStatus.WAITING
    assert len(local.ended) == local.runs == 1

    (asked,) = [block.body for block in bench.blocks if isinstance(block.body, ApprovalRequestBody)]
    approve = IncomingSignal(bench.ids.signal(), SignalKind.APPROVE, "", approval_id=asked.approval_id)
    await bench.inbox.accept_signal(ANN, bench.conversation_id, approve, None)
    await bench.hire(dies_at=dies_at).work()
    bench.expire_lease()
    await bench.work()

    assert send.calls.total() <= 1
    assert workflow.effects.count("open") == 1
    assert workflow.effects.count("mail") <= 1
    assert len(bench.exits) == 1
    await check_conversation(bench, ends_may_repeat=True)


async def test_a_steer_with_text_lets_the_workflow_finish():
    workflow = Waits()
    bench = Bench(HELLO, answer("Finished."), authored=LocalWorkflow(workflow))
    await bench.say("Hi")
    working = asyncio.create_task(bench.work())
    await until(lambda: BlockType.SEGMENT_END in [block.type for block in bench.blocks])
    await bench.signal(SignalKind.STEER, "Finish now.")
    workflow.go.set()
    await working

    assert bench.texts(CompletionBody) == ["Hello!", "Finished."]
    assert "Finish now." in read(bench.model.requests[-1])
    await check_conversation(bench)


class Fails(Plain):
    async def run(self, payload: Payload) -> Any:
        def fail() -> None:
            raise OSError("The desk is closed.")

        try:
            await self.step("open", fail)
        except StepFailed as error:
            return str(error)


async def test_a_failed_step_is_recorded_with_its_error():
    bench = await play(Fails)

    assert bench.texts(CompletionBody) == ["The step 'open' has failed: OSError: The desk is closed."]
    assert [body.state for body in recorded(bench)] == ["begun", "failed"]


class Nests(Plain):
    async def run(self, payload: Payload) -> Any:
        react = await self.build_react()
        try:
            await self.step("a", react.run, payload)
        except StepFailed as error:
            return str(error)


async def test_the_agent_can_not_run_in_a_step():
    bench = await play(Nests)

    assert bench.texts(CompletionBody) == [
        "The step 'a' has failed: WorkflowError: react.run can't be called in a step."
    ]


class ReadsResult(Plain):
    async def run(self, payload: Payload) -> Any:
        result = await (await self.build_react()).run(payload)
        urls = [self.hosting_service.get_artifact_url(file.ref) for file in result.files]
        return f"{result.outcome} {result.error} {[file.ref for file in result.files]} {urls}"


async def test_a_workflow_gets_the_files_of_the_agent_with_their_addresses():
    written = call("react.write", {"path": "outputs/a.md", "channel": "canvas", "kind": "file", "content": "A"})
    bench = await play(ReadsResult, written, HELLO)

    (text,) = bench.texts(CompletionBody)
    turn_id = bench.turn_rows[0].id
    assert text.startswith(f"completed  ['fi:{turn_id}.outputs/a.md'] ['/files/acme/main/art")


class AsksWildly(Plain):
    async def run(self, payload: Payload) -> Any:
        assert self._port is not None
        wild: list[tuple[Question, dict[str, Any]]] = [
            ("segment", {"number": 3, "text": None, "serves": []}),
            ("segment", {"number": 1, "text": "x" * 32_001, "serves": []}),
            ("step_begin", {"key": "", "effect": "pure"}),
            ("step_begin", {"key": "a", "effect": "wild"}),
            ("step_end", {"key": "a", "value": 1}),
            ("step_begin", {"key": "b", "effect": "pure"}),
            *[("step_end", {"key": "b", "value": number}) for number in range(3)],
            ("search", {"query": "x", "kind": "all", "limit": 5}),
        ]
        refused: list[str] = []
        for what, arguments in wild:
            try:
                await self._port.ask(what, arguments)
            except WorkflowError as error:
                refused.append(str(error))
        return "\n".join(refused)


async def test_wild_requests_of_a_workflow_are_refused_with_a_reason():
    bench = await play(AsksWildly)

    (text,) = bench.texts(CompletionBody)
    assert text.splitlines() == [
        "react.run: task 3 does not follow task 0.",
        "text: String should have at most 32000 characters.",
        "key: String should have at least 1 character.",
        "effect: Input should be 'pure', 'idempotent' or 'irreversible'.",
        "The step 'a' does not run.",
        "The step 'b' does not run.",
        "The step 'b' does not run.",
        "kind: Input should be 'user', 'assistant', 'attachment' or 'summary'.",
    ]
    assert [(step.key, step.value) for step in recorded(bench)] == [("b", 0)]


class Recovers(Plain):
    async def run(self, payload: Payload) -> Any:
        result = await (await self.build_react()).run(payload)
        return f"No model today: {result.outcome}, {result.error}"


async def test_a_workflow_can_answer_when_the_model_fails():
    bench = await play(Recovers, [Fail(ModelFailed("The connection was reset."))])

    assert bench.exits[0].outcome is Outcome.COMPLETED
    assert bench.texts(CompletionBody) == [
        "No model today: failed, The model did not answer. The connection was reset."
    ]


class Greedy(Plain):
    async def run(self, payload: Payload) -> Any:
        react = await self.build_react()
        for number in range(30):
            try:
                await react.run(f"Task {number}.")
            except WorkflowError as error:
                return str(error)


async def test_a_turn_has_a_limited_number_of_tasks_which_share_its_rounds():
    bench = await play(Greedy, *[HELLO] * 25, limits=TurnLimits(rounds=5))

    assert bench.texts(CompletionBody)[-1].startswith("A turn can have at most 20 calls of react.run")
    assert len(bench.model.requests) == 20


class Knows(Plain):
    """The example of the seeds."""

    def _search_knowledge(self, query: str, limit: int = 5) -> list[dict[str, Any]]:
        return [{"path": "ks:docs/a.md", "text": f"About {query}", "limit": limit}]

    async def _read_knowledge(self, path: str) -> str:
        if path != "docs/a.md":
            raise LookupError(f"There is no {path}.")
        await self.step("nested", str)
        return "Never."

    async def run(self, payload: Payload) -> Any:
        react = await self.build_react(
            scratchpad=self.scratchpad,
            knowledge_space_fn=self._search_knowledge,
            knowledge_read_fn=self._read_knowledge,
        )
        return await react.run(payload)


async def test_functions_of_the_workflow_serve_the_knowledge_of_its_agent():
    search = call("react.search_knowledge", {"query": "backups", "limit": 3})
    bench = await play(Knows, search, call("react.read", {"paths": ["ks:docs/b.md", "ks:docs/a.md"]}), HELLO)

    found, read_again = [block.body for block in bench.blocks if isinstance(block.body, ToolResultBody)]
    assert (found.status, found.untrusted) == ("ok", True)
    assert found.text == '[{"path": "ks:docs/a.md", "text": "About backups", "limit": 3}]'
    assert read_again.text.split("\n\n") == [
        "ks:docs/b.md: LookupError: There is no docs/b.md.",
        "ks:docs/a.md: WorkflowError: self.step can't be called in a knowledge function.",
    ]


async def test_without_such_functions_there_is_no_search():
    bench = await play(Plain, call("react.search_knowledge", {"query": "backups"}), HELLO)

    assert not [block for block in bench.blocks if isinstance(block.body, ToolResultBody)]


class Remembers(Plain):
    async def run(self, payload: Payload) -> Any:
        prompt = f"ar:{payload.turn_id}.user.prompt"
        found = await self.ctx_client.search(query="sales", kind="assistant", limit=5)
        try:
            await self.ctx_client.search(query="sales", limit=1_000)
        except WorkflowError as error:
            refused = str(error)
        try:
            await self.ctx_client.fetch_ctx(["ar:turn_none.user.prompt"])
        except WorkflowError as error:
            refused += f" {error}"
        return f"{found} {await self.ctx_client.fetch_ctx([prompt])} {refused}"


class Search:
    """Implements Tool in place of `react.memsearch`."""

    def __init__(self) -> None:
        self.spec = replace(DemoTool("react.memsearch").spec, params=MemsearchParams)
        self.asked: list[ToolCall] = []

    async def run(self, call: ToolCall) -> ToolOutcome:
        self.asked.append(call)
        return ToolOutcome("ok", '{"mode": "semantic", "hits": 1}\n{"ref": "ar:turn_1.assistant.completion"}')


async def test_a_workflow_searches_and_reads_for_its_person():
    search = Search()
    bench = Bench(authored=LocalWorkflow(Remembers()), tools=[search])
    await bench.say("How are sales?")
    await bench.work()

    (text,) = bench.texts(CompletionBody)
    assert text.startswith("[{'ref': 'ar:turn_1.assistant.completion'}] ar:turn_")
    assert "---\nHow are sales? " in text
    assert "limit: Input should be less than or equal to" in text
    assert text.endswith("missing (nothing is stored under this ref)")
    (asked,) = search.asked
    assert asked.context.principal.user_id == "ann"
    assert asked.params == MemsearchParams(query="sales", targets=["assistant"], scope="user", top_k=5)


class Tries(Plain):
    async def run(self, payload: Payload) -> Any:
        try:
            return await self.ctx_client.search(query="sales")
        except WorkflowError as error:
            return str(error)


class BrokenSearch(Search):
    async def run(self, call: ToolCall) -> ToolOutcome:
        raise RuntimeError("a defect")


async def test_a_defect_of_a_tool_is_an_error_of_the_request_only():
    bench = Bench(authored=LocalWorkflow(Tries()), tools=[BrokenSearch()])
    await bench.say("How are sales?")
    await bench.work()

    assert bench.texts(CompletionBody) == ["It could not be read. The worker's log has the reason."]
    assert "workflow_request" not in LOOPS.failing, "one workflow makes the worker unready"
