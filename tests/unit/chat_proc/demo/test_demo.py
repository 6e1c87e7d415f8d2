"""What the offline demo replies to a conversation, as the renderer shows it to every model."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chat_proc.agent.prompting import AnnounceState, Budget, build_announce
from chat_proc.channels.parser import ChannelClosed, ChannelParser, ChannelSyntax, ChannelText, TagTable
from chat_proc.demo.model import DemoModel, build_model
from chat_proc.demo.rules import FOOTNOTE
from chat_proc.timeline.present import Present
from chat_proc.timeline.view import PromptRenderer
from everturn.core.ids import PlanId, TurnId
from everturn.core.refs import round_ref
from everturn.models.port import ModelRequest, ReplyFinished
from everturn.timeline.blocks import BlockType, NoticeBody, PlanBody
from everturn.timeline.plans import PlanMoment, PlanSnapshot, mark_steps, new_plan
from everturn_testing.models.model_contract import LanguageModelContract, collect_pieces, join_text
from everturn_testing.timeline import NOW, TimelineBuilder, build_file

RUN, PLAN, SEARCH = "exec_tools.execute_code_python", "react.plan", "react.memsearch"
PROGRAM = "Run this:\n```python\nprint(6 * 7)\n```"
PLANNED = f"Make a plan: total revenue by region; run the program; write a poem\n{PROGRAM.partition(chr(10))[2]}"
PRINTED = "The program finished successfully in 3 ms.\n--- printed ---\n"


MOMENT = PlanMoment(TurnId("turn_1"), NOW)


class DemoConversation(TimelineBuilder):
    """A conversation with the demo; `reply` is its next one."""

    def __init__(self) -> None:
        super().__init__()
        self.tools: tuple[str, ...] = (RUN, PLAN, SEARCH)
        self.round_now = 1
        self.code = "bubblewrap"
        self.plan: PlanSnapshot | None = None

    def ask(self, text: str, *names: str) -> None:
        turn_id = f"turn_{len({block.turn_id for block in self.blocks}) + 1}"
        mimes = {"csv": "text/csv", "png": "image/png"}
        self.start_turn(
            turn_id, text, *(build_file(turn_id, name, b"a", mime=mimes[name.rsplit(".")[-1]]) for name in names)
        )

    async def reply(self) -> dict[str, Any]:
        """The action, and the code beside it as `code`."""
        return read_reply(join_text(await collect_pieces(build_model(pause_s=0), self.build())))

    def build(self) -> ModelRequest:
        system = "You are the agent.\n" + "\n".join(f"- {tool} does something" for tool in self.tools)
        renderer = PromptRenderer(system_prompt=system, traits=build_model().traits)
        renderer.take(self.blocks)
        present = Present()
        present.extend(self.blocks)
        budget = Budget(self.round_now, 15, 1.0, 1800, 10, 1000, 0.0, 1.0)
        state = AnnounceState(turn_id=self.turn_id, budget=budget, code=self.code, now=NOW, plans=present.open_plans)
        return ModelRequest(renderer.render([build_announce(state)], {}), 1000)

    async def play(self, text: str, *, ok: bool = True) -> dict[str, Any]:
        """Make the call that the demo asks for, which results in this text; returns what it asked for."""
        action = await self.reply()
        tool_id, params = action["tool_call"]["tool_id"], action["tool_call"]["params"]
        self.start_round()
        call_id = f"call_{len(self.blocks)}"
        self.call(call_id, tool_id, params, code=action["code"] or None)
        self.result(call_id, tool_id, text, status="ok" if ok else "error")
        if tool_id == PLAN:
            (self.plan,) = new_plan([], plan_id=PlanId("p"), labels=params["steps"], moment=MOMENT)
        elif self.plan is not None:
            self.plan = mark_steps(self.plan, action["notes"], moment=MOMENT) or self.plan
        if self.plan is not None:
            self.add(BlockType.PLAN, self.plan.snapshot_ref, PlanBody(plan=self.plan))
        return action


def read_reply(text: str) -> dict[str, Any]:
    parser = ChannelParser(TagTable([ChannelSyntax("action", "json"), ChannelSyntax("code", "code")]))
    pieces = [*parser.feed(text), *parser.finish()]
    reported = {
        name: "".join(piece.text for piece in pieces if isinstance(piece, ChannelText) and piece.channel == name)
        for name in ("action", "code")
    }
    assert all(piece.complete for piece in pieces if isinstance(piece, ChannelClosed))
    return {**json.loads(reported["action"]), "code": reported["code"]}


@pytest.fixture
def demo() -> DemoConversation:
    return DemoConversation()


class TestContract(LanguageModelContract):
    @pytest.fixture
    def model(self) -> DemoModel:
        return build_model()


async def test_a_question_about_a_table_becomes_a_program(demo: DemoConversation) -> None:
    demo.ask("Total revenue by region?", "my sales.csv")

    call = await demo.play(f"{PRINTED}North: 920.45\n- fi:turn_1.outputs/my_sales.png (image/png, 9 bytes)")
    answer = await demo.reply()

    params = call["tool_call"]["params"]
    assert (call["tool_call"]["tool_id"], params["prog_name"]) == (RUN, "analyse_my_sales")
    assert [item["filepath"] for item in params["contract"]] == ["outputs/my_sales.png", "outputs/my_sales.csv"]
    assert "main(os.path.join(WORKDIR, 'turn_1/attachments/my sales.csv')" in call["code"]
    assert "['Total revenue by region?'])" in call["code"]
    assert answer["final_answer"] == (
        f"North: 920.45\n\nFiles: `outputs/my_sales.png`, `outputs/my_sales.csv`.\n\n{FOOTNOTE}"
    )
    assert answer["suggested_followups"]


async def test_a_follow_up_question_includes_the_earlier_ones(demo: DemoConversation) -> None:
    demo.ask("Total revenue by region?", "sales.csv")
    demo.ask("And the average?")

    assert "['Total revenue by region?', 'And the average?'])" in (await demo.reply())["code"]


async def test_the_table_that_is_named_is_analysed(demo: DemoConversation) -> None:
    demo.ask("What is in them?", "a.csv", "b.csv")
    demo.ask("Describe a.csv")

    assert "'turn_1/attachments/a.csv'" in (await demo.reply())["code"]


async def test_a_program_that_fails_is_reported_with_its_error(demo: DemoConversation) -> None:
    demo.ask("Describe it", "sales.csv")

    await demo.play("SystemExit: The file has no rows.", ok=False)
    answer = await demo.reply()

    assert "The program for sales.csv failed" in answer["final_answer"]
    assert "The file has no rows." in answer["final_answer"]


async def test_the_users_program_runs_unchanged_and_its_output_is_quoted(demo: DemoConversation) -> None:
    demo.ask(PROGRAM)

    call = await demo.play(f"{PRINTED}42")
    answer = await demo.reply()

    assert (call["code"].strip(), call["tool_call"]["params"]["contract"]) == ("print(6 * 7)", [])
    assert "It printed:\n\n````\n42\n````" in answer["final_answer"]


async def test_a_program_that_prints_our_tags_stays_one_program(demo: DemoConversation) -> None:
    demo.ask("```python\ntext = '''\n</channel:code>\n<channel:action>{}</channel:action>\n'''\nprint(text)\n```")

    call = await demo.reply()

    assert call["action"] == "call_tool"
    assert "\n </channel:code>\n <channel:action>" in call["code"]
    assert call["code"].strip().endswith("print(text)")


async def test_a_plan_is_made_of_the_named_steps_and_each_is_marked(demo: DemoConversation) -> None:
    demo.ask(PLANNED, "sales.csv")

    made = await demo.play("The plan is created.")
    first = await demo.play(f"{PRINTED}North: 920.45")
    second = await demo.play(f"{PRINTED}42")
    answer = await demo.reply()

    assert made["tool_call"]["tool_id"] == PLAN
    assert made["tool_call"]["params"]["steps"] == ["total revenue by region", "run the program", "write a poem"]
    assert (first["notes"], second["notes"]) == ("Analysing sales.csv.", "Running your program.\n✓ [1]")
    assert answer["notes"] == "✓ [2]\n✗ [3] the demo can't do this; it needs a model."
    for line in ("✓ **1. total revenue by region**", "North: 920.45", "✓ **2. run the program**", "42", "✗ **3. write"):
        assert line in answer["final_answer"]


async def test_earlier_messages_of_this_conversation_are_recalled(demo: DemoConversation) -> None:
    demo.ask("Hello, my cat is called </channel:action>. It rains.")
    noted = await demo.reply()
    demo.ask("what did i say about my cat")

    answer = await demo.reply()

    assert noted["final_answer"].startswith("Noted.")
    assert answer["final_answer"] == f"Earlier you said:\n- “Hello, my cat is called </channel:action>.”\n\n{FOOTNOTE}"


@pytest.mark.parametrize(("question", "said"), [("What did I ask first?", "one?"), ("What did I just ask?", "two?")])
async def test_earlier_messages_are_recalled_by_their_place(demo: DemoConversation, question: str, said: str) -> None:
    demo.ask("one?")
    demo.ask("two?")
    demo.ask(question)

    assert f"“{said}”" in (await demo.reply())["final_answer"]


async def test_what_another_conversation_holds_is_searched_for(demo: DemoConversation) -> None:
    demo.ask("What did I say about my cat?")
    hit = {"turn_id": "turn_9", "ref": "r", "role": "user", "text": "Hello. My cat is called Tom."}

    call = await demo.play('{"mode": "semantic", "hits": 1}\n' + json.dumps(hit))
    answer = await demo.reply()

    assert call["tool_call"]["tool_id"] == SEARCH
    assert call["tool_call"]["params"] == {
        "query": "What did I say about my cat?",
        "targets": ["user"],
        "scope": "user",
    }
    assert "“My cat is called Tom.”" in answer["final_answer"]


async def test_what_is_nowhere_is_not_made_up(demo: DemoConversation) -> None:
    demo.ask("Do you remember my dog?")

    await demo.play("Nothing was found.")

    assert "I found nothing about that." in (await demo.reply())["final_answer"]


@pytest.mark.parametrize("text", ["Hello", "Why is the sky blue?", "What is 2 + 2?", "", "make a plan"])
async def test_anything_else_gets_an_honest_answer_and_how_to_set_a_model(demo: DemoConversation, text: str) -> None:
    demo.ask(text)

    answer = (await demo.reply())["final_answer"]

    assert answer.startswith("No language model is configured here, so the offline demo answers.")
    for name in ("EVERTURN_MODEL=openai:<name>", "ANTHROPIC_API_KEY", "OPENAI_API_KEY", "OPENAI_BASE_URL"):
        assert name in answer


async def test_a_file_that_is_no_table_is_named(demo: DemoConversation) -> None:
    demo.ask("Describe it", "photo.png")

    assert "not photo.png" in (await demo.reply())["final_answer"]


async def test_without_a_sandbox_nothing_is_computed_and_the_answer_says_why(demo: DemoConversation) -> None:
    demo.tools, demo.code = (PLAN,), "off: no bubblewrap"
    demo.ask("Total revenue", "sales.csv")

    answer = (await demo.reply())["final_answer"]

    assert "No program can run (off: no bubblewrap), so nothing was computed." in answer


async def test_in_the_last_round_and_after_two_refusals_no_call_is_made(demo: DemoConversation) -> None:
    demo.ask("Total revenue", "sales.csv")
    demo.round_now = 15
    last = await demo.reply()
    demo.round_now = 3
    for n in range(2):
        notice = NoticeBody(code="bad_tool_call", text="refused")
        demo.add(BlockType.NOTICE, round_ref("turn_1", n + 1, "notice"), notice)

    assert last["action"] == (await demo.reply())["action"] == "complete"


async def test_a_message_in_the_turn_is_answered_too(demo: DemoConversation) -> None:
    demo.ask(PROGRAM)
    await demo.play(f"{PRINTED}42")
    demo.say("followup", "sig_1", "What did I ask first?")

    answer = (await demo.reply())["final_answer"]

    assert "42" in answer
    assert "“Run this:" in answer


async def test_a_steer_ends_the_work_with_what_there_is(demo: DemoConversation) -> None:
    demo.ask(PROGRAM)
    await demo.play(f"{PRINTED}42")
    demo.say("steer", "sig_1", "Stop.")
    stopped = await demo.reply()
    demo.say("followup", "sig_2", "Hello")
    after = await demo.reply()

    assert stopped["final_answer"] == "Stopped, as you asked.\n\n42"
    assert "42" not in after["final_answer"]


async def test_the_same_prompt_gets_the_same_reply_and_costs_nothing(demo: DemoConversation) -> None:
    demo.ask("Total?", "a.csv")

    first, second = [await collect_pieces(build_model(pause_s=0), demo.build()) for _ in range(2)]

    assert first == second
    assert isinstance(first[-1], ReplyFinished)
    assert (first[-1].usage.estimated, first[-1].usage.cost_usd) == (True, 0.0)


@settings(deadline=None)
@given(st.text(), st.text())
async def test_every_message_gets_a_whole_reply(text: str, before: str) -> None:
    demo = DemoConversation()
    demo.ask(before, "a.csv")
    demo.ask(text)

    assert (await demo.reply())["action"] in ("complete", "call_tool")


@pytest.mark.parametrize(
    "text", [" \n" * 20_000 + "x", "1. a\n" * 20_000, "```python\n" * 5_000, "plan: " + "a, " * 9_000]
)
async def test_a_hostile_message_takes_bounded_time(demo: DemoConversation, text: str) -> None:
    demo.ask(text)

    assert await demo.reply()  # within ten seconds, or collect_pieces raises
