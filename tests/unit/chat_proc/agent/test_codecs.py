"""Whole turns under each codec, and turns whose codec changes."""

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import pytest
from turn_harness.checks import check_conversation, flatten
from turn_harness.harness import Bench, until
from turn_harness.replies import answer_in, call, call_in
from turn_harness.tools import DemoTool

from chat_proc.agent.kit import TurnLimits
from chat_proc.channels.codec import DEFAULT_ROUNDS
from chat_proc.channels.decision_problems import DecisionLimits
from everturn.events.model import ChatDelta, ChatRewind
from everturn.models.port import CodecName, PromptMessage, TextPart, ToolCallPart, ToolResultPart
from everturn.timeline.blocks import CompletionBody, NoticeBody, ThinkingBody, ToolCallBody, ToolResultBody
from everturn.timeline.progress import CALLS_NATIVELY
from everturn.timeline.turns import Outcome, SignalKind
from everturn.turns.model import Effect
from everturn_testing.models.scripted_model import Call, Say, Script, Think

CODECS: tuple[CodecName, ...] = ("channels", "native", "json")


def write_call(codec: CodecName, text: str) -> Script:
    """A reply that calls the tool with this text."""
    return call_in(codec, "demo.echo", {"text": text})


def calls_of(*texts: str) -> list[Call]:
    return [Call("demo__echo", json.dumps({"text": text}), f"call_{text}") for text in texts]


async def answer_of(bench: Bench) -> str:
    deltas = [event.data for event in await bench.published() if isinstance(event.data, ChatDelta)]
    return "".join(delta.text for delta in deltas if delta.channel == "answer")


def roles(messages: Sequence[PromptMessage]) -> list[str]:
    return [message.role for message in messages]


def results(bench: Bench) -> list[str]:
    return [block.body.text for block in bench.blocks if isinstance(block.body, ToolResultBody)]


@pytest.mark.parametrize(
    ("codec", "script"),
    [
        ("native", [Think("x" * 90_000), *calls_of("a")]),
        ("channels", [Think("x" * 90_000), Say(call("demo.echo", {"text": "a"}))]),
        ("json", json.dumps({"reasoning": "x" * 90_000, "action": "tool_call", "tool": "demo.echo", "args": {}})),
    ],
)
async def test_thinking_is_kept_up_to_the_same_limit_in_every_form(codec: CodecName, script: Script) -> None:
    bench = Bench(script, answer_in(codec, "It is a."), tools=[DemoTool()], codec=codec, chunk_chars=10_000)

    await bench.say("Echo a.")
    await bench.work()

    limit = DecisionLimits().max_thinking_chars
    assert sum(map(len, bench.texts(ThinkingBody))) == limit
    (notice,) = bench.texts(NoticeBody)
    assert f"Keep your thinking under {limit} characters." in notice
    await check_conversation(bench)


@pytest.mark.parametrize("codec", CODECS)
async def test_reasoning_is_for_people_and_in_no_later_request(codec: CodecName) -> None:
    script = write_call(codec, "a")
    called = [Say(script)] if isinstance(script, str) else list(script)
    bench = Bench(
        [Think("HIDDEN"), *called], answer_in(codec, "Done."), answer_in(codec, "Yes."), tools=[DemoTool()], codec=codec
    )

    for text in ("Echo a.", "Are you sure?"):
        await bench.say(text)
        await bench.work()

    assert len(bench.model.requests) >= 3
    assert "HIDDEN" not in repr(bench.model.requests)
    assert "HIDDEN" in bench.texts(ThinkingBody)
    assert "HIDDEN" in [text.text for text in bench.state().turns[0].texts]
    await check_conversation(bench)


@pytest.mark.parametrize("codec", CODECS)
async def test_a_turn_calls_a_tool_and_answers_under_each_codec(codec: CodecName) -> None:
    bench = Bench(write_call(codec, "a"), answer_in(codec, "It is a."), tools=[DemoTool()], codec=codec)

    await bench.say("Echo a.")
    await bench.work()

    assert results(bench) == ["echo: a"]
    assert await answer_of(bench) == "It is a."
    assert [exit.outcome for exit in bench.exits] == [Outcome.COMPLETED]
    await check_conversation(bench)


async def test_native_calls_are_sent_back_with_their_results_in_call_order() -> None:
    bench = Bench([Say("Let me look."), *calls_of("a", "b")], "Both.", tools=[DemoTool()], codec="native")
    await bench.say("Echo a and b.")

    await bench.work()

    first, second = bench.model.requests
    assert first.tools[0].name == "demo__echo" and second.tools == first.tools
    assert roles(second.messages) == ["system", "user", "assistant", "tool", "tool", "user"]
    said, *called = second.messages[2].parts
    assert isinstance(said, TextPart) and said.text == "Let me look."
    assert [(part.name, part.arguments) for part in called if isinstance(part, ToolCallPart)] == [
        ("demo__echo", '{"text": "a"}'),
        ("demo__echo", '{"text": "b"}'),
    ]
    returned = [part for message in second.messages[3:5] for part in message.parts if isinstance(part, ToolResultPart)]
    assert [part.call_id for part in returned] == [part.call_id for part in called if isinstance(part, ToolCallPart)]
    assert ["echo: a" in returned[0].text, "echo: b" in returned[1].text] == [True, True]
    assert bench.texts(ThinkingBody) == ["Let me look."]


class MeetingTool(DemoTool):
    """Ends only if as many calls as it expects are under way at the same time."""

    def __init__(self, expected: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._barrier = asyncio.Barrier(expected)

    async def run(self, call: Any) -> Any:
        await self._barrier.wait()
        return await super().run(call)


async def test_calls_of_one_reply_run_side_by_side() -> None:
    bench = Bench(calls_of("a", "b", "c"), "Done.", tools=[MeetingTool(3)], codec="native")
    await bench.say("Echo.")

    await asyncio.wait_for(bench.work(), 5)

    assert sorted(results(bench)) == ["echo: a", "echo: b", "echo: c"]
    await check_conversation(bench)


async def test_calls_that_change_something_run_one_after_another() -> None:
    tool = DemoTool("demo.write", strategy="exploitation")
    tool.go_on.clear()
    calls = [Call("demo__write", '{"text": "1"}'), Call("demo__write", '{"text": "2"}')]
    bench = Bench(calls, "Done.", tools=[tool], codec="native")
    await bench.say("Write.")

    working = asyncio.create_task(bench.work())
    await tool.started.wait()
    running = len(tool.calls)
    tool.go_on.set()
    await working

    assert (running, results(bench)) == (1, ["echo: 1", "echo: 2"])


async def test_each_result_is_committed_when_its_call_ends() -> None:
    slow, quick = DemoTool("demo.slow"), DemoTool("demo.quick")
    slow.go_on.clear()
    bench = Bench([Call("demo__slow"), Call("demo__quick")], "Done.", tools=[slow, quick], codec="native")
    await bench.say("Do both.")

    working = asyncio.create_task(bench.work())
    await until(lambda: len(results(bench)) == 1)
    slow.go_on.set()
    await working

    tools = [block.body.tool_id for block in bench.blocks if isinstance(block.body, ToolResultBody)]
    assert tools == ["demo.quick", "demo.slow"]


async def test_calls_under_way_on_a_dead_worker_all_count_as_begun() -> None:
    """The pure one is made again; whether the irreversible one took effect is not known."""
    pure, sent = DemoTool("demo.look"), DemoTool("demo.send", effect=Effect.IRREVERSIBLE)
    calls = [Call("demo__look"), Call("demo__send")]
    bench = Bench(calls, "Sent, perhaps.", tools=[pure, sent], codec="native")
    await bench.say("Look and send.")
    for tool in (pure, sent):
        tool.go_on.clear()
    first = bench.hire()
    working = asyncio.create_task(first.work())
    await asyncio.gather(pure.started.wait(), sent.started.wait())
    first.gate.dead.set()
    await working

    bench.expire_lease()
    pure.go_on.set()
    await bench.work()

    status = {block.body.tool_id: block.body.status for block in bench.blocks if isinstance(block.body, ToolResultBody)}
    assert status == {"demo.look": "ok", "demo.send": "ambiguous"}
    assert (sum(pure.calls.values()), sum(sent.calls.values())) == (2, 1)
    assert sum(isinstance(block.body, ToolCallBody) for block in bench.blocks) == 2


async def test_a_steer_ends_all_calls_that_are_under_way() -> None:
    slow = [DemoTool(f"demo.slow_{n}") for n in range(2)]
    for tool in slow:
        tool.go_on.clear()
    bench = Bench([Call("demo__slow_0"), Call("demo__slow_1")], "Stopped.", tools=slow, codec="native")
    await bench.say("Do both.")
    worker = bench.hire()
    working = asyncio.create_task(worker.work())
    await asyncio.gather(*(tool.started.wait() for tool in slow))

    await bench.signal(SignalKind.STEER, "Stop that.")
    await working

    status = [block.body.status for block in bench.blocks if isinstance(block.body, ToolResultBody)]
    assert status == ["cancelled", "cancelled"]
    assert bench.exits[-1].outcome is not None
    await check_conversation(bench)


async def test_a_channels_model_that_calls_natively_goes_on_in_that_form() -> None:
    bench = Bench(calls_of("a"), calls_of("b"), "Both.", tools=[DemoTool()])
    await bench.say("Echo a and b.")

    await bench.work()

    tools = [bool(request.tools) for request in bench.model.requests]
    assert (tools, results(bench)) == ([False, True, True], ["echo: a", "echo: b"])
    notices = [block.body for block in bench.blocks if isinstance(block.body, NoticeBody)]
    assert [notice.code for notice in notices] == [CALLS_NATIVELY]
    assert await answer_of(bench) == "Both."
    await check_conversation(bench)


async def test_another_worker_keeps_the_form_that_the_model_chose() -> None:
    bench = Bench(calls_of("a"), "It is a.", tools=[DemoTool()])
    await bench.say("Echo a.")

    await bench.hire(failpoint="turn.after_c1:1:raise").work()
    bench.expire_lease()
    await bench.work()

    assert bench.model.requests[-1].tools and results(bench) == ["echo: a"]
    assert bench.texts(CompletionBody) == ["It is a."]


async def test_an_answer_that_turns_out_to_precede_a_native_call_is_withdrawn() -> None:
    bench = Bench([Say("I will echo it for you now."), *calls_of("a")], "It is a.", tools=[DemoTool()])
    await bench.say("Echo a.")

    await bench.work()

    events = [event.data for event in await bench.published()]
    assert any(isinstance(event, ChatRewind) for event in events)
    assert bench.texts(CompletionBody) == ["It is a."]
    await check_conversation(bench)


async def test_the_codec_can_change_with_every_turn() -> None:
    order: list[CodecName] = ["channels", "native", "json", "native", "channels"]
    scripts: list[Script] = []
    for n, codec in enumerate(order):
        scripts += (write_call(codec, str(n)), answer_in(codec, f"It is {n}."))
    bench = Bench(*scripts, tools=[DemoTool()])

    for n, codec in enumerate(order):
        bench.codec = codec
        await bench.say(f"Echo {n}.")
        await bench.work()

    assert results(bench) == [f"echo: {n}" for n in range(5)]
    assert bench.texts(CompletionBody) == [f"It is {n}." for n in range(5)]
    assert all(any("echo: 0" in str(part) for _, *part in flatten(r.messages)) for r in bench.model.requests[2:])
    await check_conversation(bench)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("other", CODECS)
async def test_a_turn_is_resumed_under_another_codec(codec: CodecName, other: CodecName) -> None:
    bench = Bench(write_call(codec, "a"), answer_in(other, "It is a."), tools=[DemoTool()], codec=codec)
    await bench.say("Echo a.")

    await bench.hire(failpoint="turn.after_c1:1:raise").work()
    bench.expire_lease()
    bench.codec = other
    await bench.work()

    assert bench.texts(CompletionBody) == ["It is a."]
    await check_conversation(bench)


async def test_messages_that_arrive_during_calls_follow_all_results_together() -> None:
    slow = DemoTool("demo.slow")
    slow.go_on.clear()
    calls = [Call("demo__slow"), *calls_of("a")]
    bench = Bench(calls, "All three.", tools=[slow, DemoTool()], codec="native")
    await bench.say("Do both.")
    working = asyncio.create_task(bench.work())
    await slow.started.wait()

    await bench.signal(SignalKind.FOLLOWUP, "And b.")
    await bench.signal(SignalKind.FOLLOWUP, "And c.")
    slow.go_on.set()
    await working

    messages = bench.model.requests[1].messages
    assert roles(messages) == ["system", "user", "assistant", "tool", "tool", "user"]
    said = "\n".join(part.text for part in messages[-1].parts if isinstance(part, TextPart))
    assert said.index("And b.") < said.index("And c.") < said.index("[ANNOUNCE]")
    assert [exit.outcome for exit in bench.exits] == [Outcome.COMPLETED]


@pytest.mark.parametrize("codec", ["native", "json"])
async def test_after_round_50_the_answer_is_an_account_if_the_model_writes_none(codec: CodecName) -> None:
    scripts = [write_call(codec, str(n)) for n in range(50)]
    bench = Bench(*scripts, "", tools=[DemoTool()], codec=codec, limits=TurnLimits(rounds=DEFAULT_ROUNDS[codec]))
    await bench.say("Count.")

    await bench.work()

    assert len(results(bench)) == 49  # the last round may only answer
    assert [exit.outcome for exit in bench.exits] == [Outcome.CAPPED]
    assert "demo.echo: done" in bench.texts(CompletionBody)[0]
    await check_conversation(bench)
