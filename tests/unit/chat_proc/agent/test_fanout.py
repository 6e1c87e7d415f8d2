"""Several actions in one reply, from the model's words to the timeline and the clients."""

import asyncio

import pytest
from turn_harness.checks import check_conversation
from turn_harness.harness import Bench, until
from turn_harness.replies import NONSENSE, answer, call, cut_answer
from turn_harness.tools import DemoTool

from chat_proc.agent.kit import TurnLimits
from everturn.events.model import ChatRewind
from everturn.timeline.blocks import CompletionBody, NoticeBody, RawDecisionBody, ToolCallBody, ToolResultBody
from everturn.timeline.turns import Outcome, SignalKind
from everturn.turns.model import Commit, Effect, EffectState
from everturn_testing.models.scripted_model import Pause, Say, Script

LOOK = "demo.look"
PLAN = "demo.plan"


def look(text: str, notes: str = "") -> str:
    return call(LOOK, {"text": text}, notes=notes)


def plan(text: str = "", notes: str = "") -> str:
    return call(PLAN, {"text": text}, notes=notes)


def write(path: str, content: str = "x", notes: str = "") -> str:
    return call("react.write", {"path": path, "channel": "canvas", "content": content}, notes=notes)


class Fanout:
    """A bench where several actions may share a reply, with one tool of each strategy."""

    def __init__(self, *scripts: Script, limits: TurnLimits | None = None, chunk_chars: int = 16) -> None:
        self.look = DemoTool(LOOK, strategy="exploration")
        self.plan = DemoTool(PLAN, strategy="neutral")
        self.run_code = DemoTool("demo.run", strategy="exploitation", takes_code=True)
        self.pay = DemoTool("demo.pay", strategy="neutral", effect=Effect.IRREVERSIBLE)
        tools = [self.look, self.plan, self.run_code, self.pay]
        self.bench = Bench(*scripts, tools=tools, limits=limits, fanout=True, chunk_chars=chunk_chars)

    async def run(self) -> Bench:
        await self.bench.say("Hello.")
        await self.bench.work()
        await check_conversation(self.bench)
        return self.bench


def called(bench: Bench) -> list[str]:
    return [block.body.tool_id for block in bench.blocks if isinstance(block.body, ToolCallBody)]


def notices(bench: Bench) -> list[str]:
    return [block.body.code for block in bench.blocks if isinstance(block.body, NoticeBody)]


def results(bench: Bench) -> list[tuple[str, str]]:
    return [(block.body.status, block.body.text) for block in bench.blocks if isinstance(block.body, ToolResultBody)]


async def test_accepted_actions_run_in_order_each_with_a_call_id_of_its_own() -> None:
    bench = await Fanout(look("one", "First.") + look("two", "Second."), answer("Done.")).run()

    assert results(bench) == [("ok", "echo: one"), ("ok", "echo: two")]
    assert len({block.call_id for block in bench.blocks if isinstance(block.body, ToolCallBody)}) == 2
    assert not any(isinstance(event.data, ChatRewind) for event in await bench.published())


async def test_all_calls_of_a_reply_are_one_commit_and_each_result_is_another() -> None:
    fanout = Fanout(look("one") + look("two"), answer("Done."))
    made: list[Commit] = []
    await fanout.bench.say("Hello.")
    worker = fanout.bench.hire()

    async def keep(commit: Commit) -> None:
        made.append(commit)

    worker.timelines.before_commit = keep
    await worker.work()

    _, decision, first, second, _ = made
    assert [effect.state for effect in decision.effects] == [EffectState.INTENDED] * 2
    assert [len(commit.effects) for commit in (first, second)] == [1, 1]


async def test_refused_siblings_get_their_own_notice_and_the_others_run() -> None:
    bench = await Fanout(look("one") + write("files/a.md") + look("two"), answer("Done.")).run()

    assert called(bench) == [LOOK, LOOK]
    assert notices(bench) == ["explore_then_exploit"]
    assert "Action 2 was not run." in str(bench.model.requests[1])


async def test_a_malformed_sibling_keeps_the_valid_ones() -> None:
    bench = await Fanout(look("one") + NONSENSE + plan(), answer("Done.")).run()

    assert called(bench) == [LOOK, PLAN]
    assert notices(bench) == ["not_json"]
    assert bench.texts(RawDecisionBody) == []


async def test_when_nothing_survives_the_round_has_failed() -> None:
    bench = await Fanout(NONSENSE + call("demo.none", {}), answer("Done.")).run()

    assert called(bench) == []
    assert notices(bench) == ["not_json"]
    assert len(bench.texts(RawDecisionBody)) == 1
    assert "does not exist" in bench.texts(NoticeBody)[0]


async def test_several_files_stream_while_they_are_written() -> None:
    bench = await Fanout(
        plan(notes="Go.") + write("files/a.md", "aaa", "One.") + write("files/b.md", "bbb", "Two."), answer("Done.")
    ).run()

    (turn,) = bench.state().turns
    texts = [(text.channel, text.instance, text.text) for text in turn.texts if text.round == 1]
    assert texts == [
        ("notes", 0, "Go."),
        ("notes", 1, "One."),
        ("notes", 2, "Two."),
        ("canvas", 1, "aaa"),
        ("canvas", 2, "bbb"),
    ]
    assert not any(isinstance(event.data, ChatRewind) for event in await bench.published())


async def test_a_final_answer_is_applied_after_the_last_neutral_action() -> None:
    bench = await Fanout(plan("p") + answer("Done.", followups=("Why?",), summary="s")).run()

    assert bench.exits[0].outcome is Outcome.COMPLETED
    assert bench.exits[0].rounds == 1
    types = bench.types
    assert types.index("react.tool.result") < types.index("assistant.completion")
    assert types.index("conv.working.summary") < types.index("react.tool.result")
    (completion,) = [block.body for block in bench.blocks if isinstance(block.body, CompletionBody)]
    assert (completion.text, completion.followups) == ("Done.", ("Why?",))
    assert not any(isinstance(event.data, ChatRewind) for event in await bench.published())


async def test_neutral_tools_after_a_final_answer_still_run() -> None:
    bench = await Fanout(answer("Done.") + plan("p")).run()

    assert called(bench) == [PLAN]
    assert bench.texts(CompletionBody) == ["Done."]


async def test_a_final_answer_after_work_is_dropped_and_the_work_runs() -> None:
    bench = await Fanout(look("one") + answer("Too early."), answer("Done.")).run()

    assert bench.texts(CompletionBody) == ["Done."]
    assert notices(bench) == ["final_after_work"]
    assert "Too early." not in str([event.data for event in await bench.published()])


async def test_work_after_a_final_answer_is_dropped_and_the_turn_ends() -> None:
    bench = await Fanout(answer("Done.") + look("one")).run()

    assert called(bench) == []
    assert notices(bench) == ["work_after_final"]
    assert bench.texts(CompletionBody) == ["Done."]


async def test_a_program_runs_beside_a_neutral_tool() -> None:
    fanout = Fanout(call("demo.run", {}, code="print(1)") + plan(), answer("Done."))

    await fanout.run()

    assert fanout.run_code.programs == ["print(1)\n"]


async def test_an_answer_with_calls_needs_no_other_round() -> None:
    bench = await Fanout(plan() + answer("Done."), limits=TurnLimits(rounds=1)).run()

    assert bench.exits[0].outcome is Outcome.COMPLETED


async def test_calls_alone_in_the_last_round_lead_to_the_closing_call() -> None:
    bench = await Fanout(look("one") + look("two"), answer("Closed."), limits=TurnLimits(rounds=1)).run()

    assert called(bench) == []
    assert notices(bench) == ["last_round"]
    assert bench.exits[0].outcome is Outcome.CAPPED


async def test_a_steer_between_two_items_stops_the_rest_and_their_results_say_so() -> None:
    fanout = Fanout(plan("one") + look("two") + look("three"), answer("Short."))
    fanout.plan.spec = DemoTool(PLAN, strategy="neutral", cancellable=False).spec
    bench = fanout.bench
    fanout.plan.go_on.clear()
    await bench.say("Hello.")
    task = asyncio.create_task(bench.work())
    await fanout.plan.started.wait()

    await bench.signal(SignalKind.STEER, "Be short.")
    fanout.plan.go_on.set()
    await task

    assert [status for status, _ in results(bench)] == ["ok", "cancelled", "cancelled"]
    assert "was not started" in results(bench)[1][1]
    assert fanout.look.calls.total() == 0
    assert bench.texts(CompletionBody) == ["Short."]
    await check_conversation(bench)


async def test_a_followup_that_comes_while_an_answer_waits_opens_one_more_round() -> None:
    fanout = Fanout(plan("one") + answer("First."), answer("Both."))
    bench = fanout.bench
    fanout.plan.go_on.clear()
    await bench.say("Hello.")
    task = asyncio.create_task(bench.work())
    await fanout.plan.started.wait()

    await bench.say("And this.")
    fanout.plan.go_on.set()
    await task

    assert bench.texts(CompletionBody)[-1] == "Both."
    assert str(bench.model.requests[1]).count("First.") == 1
    await check_conversation(bench)


async def test_a_worker_may_die_at_any_step_of_several_actions() -> None:
    scenario = (plan("one") + call("demo.pay", {}) + answer("Done."),)
    counted = Fanout(*scenario)
    await counted.bench.say("Hello.")
    worker = counted.bench.hire()
    await worker.work()
    for step in range(1, worker.gate.steps + 1):
        fanout = Fanout(*scenario, *scenario)
        bench = fanout.bench
        await bench.say("Hello.")
        await bench.hire(dies_at=step).work()
        bench.expire_lease()

        await bench.work()

        assert bench.texts(CompletionBody) == ["Done."], step
        assert fanout.pay.effects.total() <= 1, step
        await check_conversation(bench, ends_may_repeat=True)


async def test_every_irreversible_call_without_a_result_is_ambiguous_after_a_takeover() -> None:
    """The second was not begun, but a worker whose tools have other strategies would have begun both side by side."""
    fanout = Fanout(call("demo.pay", {"text": "1"}) + call("demo.pay", {"text": "2"}), answer("Done."))
    bench = fanout.bench
    await bench.say("Hello.")
    await bench.hire(failpoint="turn.in_tool:1:raise").work()
    bench.expire_lease()

    await bench.work()

    assert [status for status, _ in results(bench)] == ["ambiguous", "ambiguous"]
    await check_conversation(bench)


@pytest.mark.parametrize("chunk_chars", [1, 13, 10_000])
async def test_chunks_make_no_difference(chunk_chars: int) -> None:
    reply = look("one", "First.") + write("files/a.md") + NONSENSE + plan("two", "Second.")
    bench = await Fanout(reply, answer("Done."), chunk_chars=chunk_chars).run()

    assert called(bench) == [LOOK, PLAN]
    assert sorted(notices(bench)) == ["explore_then_exploit", "not_json"]


async def test_an_interrupted_reply_runs_none_of_its_actions() -> None:
    fanout = Fanout([Say(look("one") + plan()), Pause(asyncio.Event())], answer("Short."))
    bench = fanout.bench
    await bench.say("Hello.")
    task = asyncio.create_task(bench.work())
    await until(lambda: bench.model.unfinished == 1)

    await bench.signal(SignalKind.STEER, "Be short.")
    await task

    assert called(bench) == []
    await check_conversation(bench)


async def test_a_shown_answer_is_kept_with_neutral_actions() -> None:
    bench = await Fanout(plan("p") + cut_answer("As far as")).run()

    assert bench.texts(CompletionBody) == ["As far as"]
    assert called(bench) == [PLAN]


async def test_a_second_action_is_refused_in_single_action_mode() -> None:
    bench = Bench(look("one") + look("two"), answer("Done."), tools=[DemoTool(LOOK)])
    await bench.say("Hello.")
    await bench.work()

    assert notices(bench) == ["two_actions"]
    assert called(bench) == []
    await check_conversation(bench)


async def test_v2_refuses_a_reply_without_exactly_one_thinking_channel() -> None:
    two = "<channel:thinking>a</channel:thinking><channel:thinking>b</channel:thinking>" + answer("No.")
    bench = Bench(look("one"), two, answer("Done.", thinking="One."), tools=[DemoTool(LOOK)], one_thinking=True)
    await bench.say("Hello.")
    await bench.work()

    assert notices(bench) == ["thinking_channels"] * 2
    assert bench.texts(CompletionBody) == ["Done."]
    await check_conversation(bench)


async def test_a_reply_that_can_only_be_refused_is_stopped_early() -> None:
    endless = [Say(look("one") + "<channel:action>"), Pause(asyncio.Event())]
    bench = Bench(endless, answer("Done."), tools=[DemoTool(LOOK)])
    await bench.say("Hello.")

    await asyncio.wait_for(bench.work(), 5)

    assert notices(bench) == ["two_actions"]
    assert bench.model.unfinished == 1
    await check_conversation(bench)
