"""The calls of one program: answered with clear errors, shown as steps, written down, checked against the audit."""

import asyncio
from dataclasses import replace

import pytest
from turn_harness.programs import Act, Params, ScriptedTool, build_parts

from chat_proc.catalog.tool import Record, ToolCall, ToolContext, ToolOutcome
from chat_proc.tools.code.program_calls import MAX_LISTED_CALLS, ProgramCalls, ProgramTools
from everturn.core.errors import NotFound, Unavailable
from everturn.core.identity import Principal
from everturn.core.ids import CallId, ConversationId, TurnId
from everturn.core.logging import Redactor
from everturn.execution.messages import CallRecord, GatewayCall, ToolReply, hash_arguments
from everturn.timeline.blocks import ToolCallBody, ToolResultBody
from everturn.turns.model import Effect
from everturn_testing.in_memory_platform import ConversationRow, MemoryPlatform
from everturn_testing.source_pool import MemorySourcePool
from everturn_testing.timeline import NOW
from everturn_testing.turns.live_turn import RecordingTurn

SECRET = "sk-very-secret-value"


class Run:
    """One run of a program with these tools."""

    def __init__(self, *tools: ScriptedTool) -> None:
        self.live = RecordingTurn()
        platform = MemoryPlatform()
        lease = self.live.lease
        platform.conversations[lease.conversation_id] = ConversationRow(lease.conversation_id, lease.principal, fence=1)
        self.tools = ProgramTools(tools, replace(build_parts(platform), redactor=Redactor([SECRET])))
        self.calls = self.repeat()

    def repeat(self) -> ProgramCalls:
        """The same run in another worker."""
        context = ToolContext(
            principal=Principal("acme", "main", "ann"),
            conversation_id=ConversationId("conv_1"),
            turn_id=TurnId("turn_1"),
            round=2,
            blocks=(),
            now=NOW,
            pool=MemorySourcePool(),
            live=self.live,
        )
        self.calls = ProgramCalls(self.tools, ToolCall(CallId("call_1"), Params(), "print()", context))
        return self.calls

    async def call(self, tool_id: str = "demo.echo", number: int = 1, **arguments: object) -> ToolReply:
        return await self.calls(GatewayCall(number, tool_id, arguments))

    @property
    def results(self) -> list[ToolResultBody]:
        return [record.body for record in self.calls.records() if isinstance(record.body, ToolResultBody)]


def fail(error: Exception) -> Act:
    def act(call: ToolCall) -> ToolOutcome:
        raise error

    return act


async def test_a_call_answers_with_a_value_and_is_a_step_and_two_records() -> None:
    run = Run(ScriptedTool())

    reply = await run.call(text="hi")

    assert reply == ToolReply(1, True, {"said": "hi"})
    assert run.live.steps == [("demo.echo", "started"), ("demo.echo", "completed")]
    called, result = run.calls.records()
    assert called == Record(
        called.type,
        "tc:turn_1.call_1-1.call",
        ToolCallBody(tool_id="demo.echo", params={"text": "hi"}, parent="call_1"),
        CallId("call_1-1"),
    )
    assert (result.ref, result.call_id) == ("tc:turn_1.call_1-1.result", "call_1-1")
    assert (run.results[0].status, run.results[0].text, run.results[0].parent) == ("ok", '{"said": "hi"}', "call_1")


async def test_invalid_arguments_name_the_field() -> None:
    tool = ScriptedTool()
    run = Run(tool)

    reply = await run.call(text="x" * 21)

    assert (reply.ok, reply.error_code, tool.done) == (False, "bad_arguments", 0)
    assert "text: String should have at most 20 characters" in reply.error_message


@pytest.mark.parametrize("tool_id", ["demo.other", "demo._echo", "react.read", "demo", ""])
async def test_what_is_not_offered_to_programs_is_not_allowed(tool_id: str) -> None:
    hidden = ScriptedTool("react.read", in_programs=False)
    run = Run(ScriptedTool(), hidden)

    assert (await run.call(tool_id)).error_code == "not_allowed"
    assert hidden.done == 0


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (NotFound("x"), "not_found"),
        (Unavailable("down"), "unavailable"),
        (ValueError("bad"), "tool_error"),
        (TimeoutError("upstream"), "tool_error"),
        (RecursionError(), "tool_error"),
    ],
)
async def test_an_exception_of_a_tool_is_a_typed_error(error: Exception, code: str) -> None:
    broken = ScriptedTool("demo.break", fail(error))
    run = Run(ScriptedTool(), broken)

    assert (await run.call("demo.break")).error_code == code
    assert (await run.call(number=2)).ok
    assert [result.status for result in run.results] == ["error", "ok"]


async def test_an_error_outcome_is_a_tool_error_with_its_text() -> None:
    run = Run(ScriptedTool(act=lambda _: ToolOutcome("error", "There is no such city.")))

    reply = await run.call()

    assert (reply.error_code, reply.error_message) == ("tool_error", "There is no such city.")


async def test_a_tool_that_hangs_is_ended_after_its_time() -> None:
    tool = ScriptedTool(timeout_s=0.01)
    tool.hangs = True
    run = Run(tool)

    reply = await run.call()

    assert (reply.error_code, tool.cancelled) == ("timeout", 1)
    assert "did not finish within 0.01 s" in reply.error_message


async def test_a_hundred_megabytes_are_refused_and_not_written_down() -> None:
    run = Run(ScriptedTool(act=lambda _: ToolOutcome("ok", "", value="x" * (100 << 20))))

    reply = await run.call()

    assert reply.error_code == "too_large"
    assert len(run.results[0].text) < 1_000


async def test_a_secret_is_redacted_in_values_errors_and_on_the_timeline() -> None:
    value = {"header": f"Bearer {SECRET}", SECRET: [SECRET.encode()]}
    leaky = ScriptedTool("demo.leak", lambda _: ToolOutcome("ok", "", value=value))
    failing = ScriptedTool("demo.fail", fail(ValueError(f"401 for {SECRET}")))
    run = Run(leaky, failing)

    replies = [await run.call("demo.leak"), await run.call("demo.fail", 2)]

    reported = [str(reply) for reply in replies] + [result.text for result in run.results] + [str(run.live.events)]
    assert not [text for text in reported if SECRET in text]
    assert replies[0].value == {"header": "Bearer [redacted]", "[redacted]": [b"[redacted]"]}


async def test_untrusted_results_keep_their_mark() -> None:
    run = Run(ScriptedTool("web.fetch", untrusted=True), ScriptedTool())

    await run.call()
    before = run.calls.untrusted
    await run.call("web.fetch", 2)

    assert (before, run.calls.untrusted) == (False, True)
    assert [result.untrusted for result in run.results] == [False, True]


async def test_a_repeated_run_makes_no_irreversible_call_twice() -> None:
    tool = ScriptedTool("mail.send", effect=Effect.IRREVERSIBLE)
    run = Run(tool)
    first = [await run.call("mail.send", number, text="hi") for number in (1, 2)]

    run.repeat()
    again = [await run.call("mail.send", number, text="hi") for number in (1, 2)]
    await run.call("mail.send", 3, text="hi")

    assert first == again
    assert tool.done == 3


async def test_a_retried_call_is_not_made_again_in_a_repeated_run() -> None:
    tool = ScriptedTool("mail.send", effect=Effect.IRREVERSIBLE)
    run = Run(tool)
    run.live.age_s = 60.0
    unsure = await run.call("mail.send", 1, text="hi")
    run.live.age_s = 0.0
    sent = await run.call("mail.send", 2, text="hi")

    run.repeat()
    again = await run.call("mail.send", 1, text="hi")

    assert (unsure.error_code, sent.ok, again.ok) == ("lease_unsure", True, True)
    assert tool.done == 1


async def test_a_call_cut_off_by_the_end_of_the_run_is_recorded() -> None:
    lasting, sending = ScriptedTool(), ScriptedTool("mail.send", effect=Effect.IRREVERSIBLE)
    lasting.hangs = sending.hangs = True
    run = Run(lasting, sending)
    tasks = [asyncio.create_task(run.call()), asyncio.create_task(run.call("mail.send", 2))]
    await lasting.started.wait()
    await sending.started.wait()

    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)

    assert [result.status for result in run.results] == ["cancelled", "ambiguous"]
    assert [status for _, status in run.live.steps] == ["started", "started", "error", "error"]
    assert run.calls.find_unmatched([]) == []


async def test_the_run_lists_its_calls_with_the_refs_of_their_results() -> None:
    run = Run(ScriptedTool())
    assert run.calls.describe() == ""

    for number in range(1, MAX_LISTED_CALLS + 3):
        await run.call(number=number)

    lines = run.calls.describe().splitlines()
    assert lines[:2] == ["--- tools the program called ---", "- demo.echo ok: tc:turn_1.call_1-1.result"]
    assert lines[-1] == "- and 2 more"


async def test_the_audit_of_the_supervisor_is_compared() -> None:
    run = Run(ScriptedTool())
    await run.call(text="a")
    good = CallRecord(1, "demo.echo", hash_arguments({"text": "a"}), True, "", 1, 1)

    assert run.calls.find_unmatched([good]) == []
    assert run.calls.find_unmatched([replace(good, arguments_sha256="0" * 64)]) == [1]
    assert run.calls.find_unmatched([good, replace(good, id=2)]) == [2]
    assert run.calls.find_unmatched([]) == [1]
