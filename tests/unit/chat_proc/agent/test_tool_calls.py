import asyncio
from dataclasses import replace

import pytest
from turn_harness.checks import check_conversation
from turn_harness.harness import Bench
from turn_harness.replies import answer, call
from turn_harness.tools import DeafTool, DemoTool

from chat_proc.agent.tool_calls import MAX_ERROR_CHARS, effect_change
from chat_proc.catalog.tool import Record, ToolCall, ToolOutcome
from chat_proc.turn.inbox import TurnInbox
from everturn.core.errors import Unavailable
from everturn.core.ids import CallId
from everturn.core.logging import Redactor
from everturn.core.refs import named_artifact_ref
from everturn.events.model import ChatFiles, ChatPlan, ChatStep
from everturn.files.model import ArtifactKind
from everturn.timeline.blocks import BlockType, CheckoutBody, ToolCallBody, ToolResultBody
from everturn.timeline.turns import Outcome, SignalKind
from everturn.turns.model import Effect, EffectState
from everturn_testing.timeline import build_file


async def run(tool: DemoTool) -> ToolResultBody:
    bench = Bench(call(tool.spec.tool_id, {"text": "x"}), answer("Done."), tools=[tool])
    await bench.say("Hello.")
    await bench.work()
    await check_conversation(bench)
    (result,) = [block.body for block in bench.blocks if isinstance(block.body, ToolResultBody)]
    (effect,) = bench.platform.effects.values()
    assert (
        effect.state
        is {
            "ok": EffectState.COMMITTED,
            "error": EffectState.FAILED,
            "ambiguous": EffectState.AMBIGUOUS,
        }[result.status]
    )
    return result


async def test_a_result_is_what_the_tool_returned() -> None:
    result = await run(DemoTool())

    assert (result.status, result.text) == ("ok", "echo: x")


async def test_an_exception_of_a_tool_is_reported_to_the_model() -> None:
    tool = DemoTool()
    tool.error = ValueError("bad " * MAX_ERROR_CHARS)

    result = await run(tool)

    assert result.status == "error"
    assert result.text.startswith("demo.echo failed: ValueError: bad")
    assert len(result.text) == MAX_ERROR_CHARS


async def test_a_tool_that_takes_too_long_is_ended() -> None:
    tool = DemoTool(timeout_s=0.01)
    tool.go_on.clear()

    result = await run(tool)

    assert result.status == "error"
    assert "did not finish within 0.01 s" in result.text


async def test_a_tools_own_timeout_is_not_taken_for_ours() -> None:
    tool = DemoTool()
    tool.error = TimeoutError("upstream")

    result = await run(tool)

    assert "TimeoutError: upstream" in result.text


@pytest.mark.parametrize("why", ["raises", "hangs"])
async def test_an_irreversible_call_without_an_outcome_is_ambiguous(why: str) -> None:
    tool = DemoTool("demo.send", effect=Effect.IRREVERSIBLE, timeout_s=0.01)
    if why == "raises":
        tool.error = ValueError("connection reset")
    else:
        tool.go_on.clear()

    result = await run(tool)

    assert result.status == "ambiguous"
    assert "not repeated" in result.text


async def test_a_call_that_has_begun_is_not_lost_when_the_inbox_cannot_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    tool = DemoTool("demo.send", effect=Effect.IRREVERSIBLE)
    tool.go_on.clear()
    bench = Bench(call("demo.send", {"text": "x"}), answer("Done."), tools=[tool])
    failed = asyncio.Event()

    async def fail(self: TurnInbox) -> None:
        failed.set()
        raise Unavailable("the database restarts")

    await bench.say("Hello.")
    working = asyncio.create_task(bench.work())
    async with asyncio.timeout(20):
        await tool.started.wait()
        with monkeypatch.context() as patched:
            patched.setattr(TurnInbox, "load_unseen", fail)
            await bench.signal(SignalKind.FOLLOWUP, "Are you there?")
            await failed.wait()
        tool.go_on.set()
        await working

    (result,) = [block.body for block in bench.blocks if isinstance(block.body, ToolResultBody)]
    assert (result.status, result.text) == ("ok", "echo: x")
    assert tool.effects.total() == 1


async def test_a_step_begins_after_its_call_and_ends_after_its_result() -> None:
    bench = Bench(call("demo.echo", {"text": "x"}), answer("Done."), tools=[DemoTool()])
    await bench.say("Hello.")

    await bench.work()

    steps = [event.data for event in await bench.published() if isinstance(event.data, ChatStep)]
    assert [step.status for step in steps] == ["started", "completed"]
    assert steps[1].result_preview == "echo: x"
    assert steps[0].call_id == steps[1].call_id


async def test_files_and_plans_are_published_after_their_call() -> None:
    write = {"path": "outputs/a.md", "channel": "canvas", "kind": "file", "content": "x"}
    bench = Bench(call("react.write", write), call("react.plan", {"mode": "new", "steps": ["a"]}), answer("Done."))
    await bench.say("Hello.")

    await bench.work()

    events = [type(event.data) for event in await bench.published() if isinstance(event.data, ChatFiles | ChatPlan)]
    assert events == [ChatFiles, ChatPlan]
    assert [artifact.filename for artifact in bench.platform.conversations[bench.conversation_id].artifacts] == ["a.md"]


class CheckingOut(DemoTool):
    """Takes over one file and removes another."""

    async def run(self, call: ToolCall) -> ToolOutcome:
        copy, gone = (build_file(call.context.turn_id, name, b"x", kind=ArtifactKind.FILE) for name in ("a", "b"))
        gone = gone.model_copy(update={"removed": True})
        body = CheckoutBody(mode="replace", sources=("fi:turn_1.files/a",), artifacts=(copy,), removed=(gone,))
        record = Record(BlockType.CHECKOUT, named_artifact_ref(call.context.turn_id, "checkout"), body)
        return ToolOutcome("ok", "done", records=(record,))


async def test_a_checkout_writes_rows_for_what_it_took_and_what_it_removed() -> None:
    bench = Bench(call("demo.echo", {"text": "x"}), answer("Done."), tools=[CheckingOut()])
    await bench.say("Hello.")

    await bench.work()

    rows = bench.platform.conversations[bench.conversation_id].artifacts
    assert [(row.path.rpartition("/")[2], row.removed) for row in rows] == [("a", False), ("b", True)]
    await check_conversation(bench)


async def test_the_program_of_a_call_reaches_the_tool() -> None:
    tool = DemoTool("demo.run", takes_code=True)
    bench = Bench(call("demo.run", {}, code="print(1)"), answer("Done."), tools=[tool])
    await bench.say("Hello.")

    await bench.work()

    assert tool.programs == ["print(1)\n"]
    await check_conversation(bench)


async def test_a_cancelled_worker_cancels_its_tool() -> None:
    tool = DemoTool()
    tool.go_on.clear()
    bench = Bench(call("demo.echo", {}), tools=[tool])
    await bench.say("Hello.")
    task = asyncio.create_task(bench.work())
    await tool.started.wait()

    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task
    assert tool.effects.total() == 0


def test_the_arguments_hash_does_not_depend_on_their_order() -> None:
    one, other, changed = (
        effect_change(CallId("c"), ToolCallBody(tool_id="t", params=params), Effect.PURE, EffectState.INTENDED)
        for params in ({"a": 1, "b": 2}, {"b": 2, "a": 1}, {"a": 1})
    )

    assert one == other
    assert one.args_hash != changed.args_hash


@pytest.mark.parametrize("said", ["steer", "cancel", "nothing"])
async def test_a_turn_continues_without_a_tool_that_ignores_cancellation(said: str) -> None:
    deaf = DeafTool(timeout_s=0.05 if said == "nothing" else 60.0)
    deaf.go_on.clear()
    bench = Bench(call("demo.echo", {}), answer("Without it."), tools=[deaf])
    await bench.say("Hello.")
    working = asyncio.create_task(bench.work())
    await deaf.started.wait()

    if said == "steer":
        await bench.signal(SignalKind.STEER, "Not that.")
    elif said == "cancel":
        await bench.signal(SignalKind.CANCEL)
    await working

    assert bench.exits[0].outcome is (Outcome.CANCELLED if said == "cancel" else Outcome.COMPLETED)
    (result,) = [block.body for block in bench.blocks if isinstance(block.body, ToolResultBody)]
    assert result.status == ("error" if said == "nothing" else "cancelled")
    assert bench.stragglers.count == 1
    deaf.go_on.set()
    await bench.stragglers.close(1.0)
    assert bench.stragglers.count == 0
    await check_conversation(bench)


async def test_an_interrupted_worker_does_not_wait_for_a_hanging_tool() -> None:
    deaf = DeafTool()
    deaf.go_on.clear()
    bench = Bench(call("demo.echo", {}), answer("Done."), tools=[deaf])
    await bench.say("Hello.")
    worker = bench.hire()
    working = asyncio.create_task(worker.run_one())
    await deaf.started.wait()
    assert worker.current is not None

    worker.current.interrupt()
    await working

    assert bench.stragglers.count == 1
    deaf.go_on.set()
    await bench.stragglers.close(1.0)
    await bench.work()
    await check_conversation(bench)


class Keeping(DemoTool):
    """Gives what it has when it is asked to end."""

    def __init__(self) -> None:
        super().__init__()
        self.spec = replace(self.spec, returns_partial_work=True)

    async def run(self, call: ToolCall) -> ToolOutcome:
        self.started.set()
        await call.stop.wait()
        return ToolOutcome("error", "Half of it.", artifacts=(build_file(call.context.turn_id, "half.csv", b"x"),))


async def test_a_steer_stops_a_tool_and_keeps_its_partial_work() -> None:
    tool = Keeping()
    bench = Bench(call("demo.echo", {"text": "x"}), answer("Done."), tools=[tool])
    await bench.say("Hello.")
    working = asyncio.create_task(bench.work())
    await tool.started.wait()

    await bench.signal(SignalKind.STEER, "Do something else.")
    await working

    (result,) = [block.body for block in bench.blocks if isinstance(block.body, ToolResultBody)]
    assert (result.status, [artifact.filename for artifact in result.artifacts]) == ("cancelled", ["half.csv"])
    assert "Its partial result follows.\nHalf of it." in result.text
    await check_conversation(bench)


async def test_secrets_are_taken_out_of_results() -> None:
    bench = Bench(call("demo.echo", {"text": "key sk-very-secret"}), answer("Done."), tools=[DemoTool()])
    bench.redactor = Redactor(["sk-very-secret"])
    await bench.say("Hello.")

    await bench.work()

    assert bench.texts(ToolResultBody) == ["echo: key [redacted]"]
