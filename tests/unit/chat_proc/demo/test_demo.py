"""What the offline demo replies to a conversation, as the renderer shows it to every model."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chat_proc.channels.parser import ChannelClosed, ChannelParser, ChannelSyntax, ChannelText
from chat_proc.demo.model import DemoModel, build_model
from chat_proc.demo.rules import FOOTNOTE
from chat_proc.timeline.announce import AnnounceState, Budget, build_announce
from chat_proc.timeline.present import Present
from chat_proc.timeline.render import PromptRenderer
from everturn.core.ids import PlanId, TurnId
from everturn.core.refs import round_ref
from everturn.models.port import ModelRequest, ReplyFinished
from everturn.timeline.blocks import BlockType
from everturn.timeline.bodies import NoticeBody, PlanBody
from everturn.timeline.plans import PlanMoment, PlanSnapshot, mark_steps, new_plan
from everturn_testing.models.model_contract import LanguageModelContract, collect_pieces, join_text
from everturn_testing.timeline import NOW, TimelineBuilder, build_file

RUN, PLAN, SEARCH = "exec_tools.execute_code_python", "react.plan", "react.memsearch"
PROGRAM = "Run this:\n```python\nprint(6 * 7)\n```"
PLANNED = f"Make a plan: total revenue by region; run the program; write a poem\n{PROGRAM.partition(chr(10))[2]}"
PRINTED = "The program finished successfully in 3 ms.\n--- printed ---\n"


MOMENT = PlanMoment(TurnId("turn_1"), NOW)


class Talk(TimelineBuilder):
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
    parser = ChannelParser([ChannelSyntax("action", "json"), ChannelSyntax("code", "code")])
    pieces = [*parser.feed(text), *parser.finish()]
    reported = {
        name: "".join(piece.text for piece in pieces if isinstance(piece, ChannelText) and piece.channel == name)
        for name in ("action", "code")
    }
    assert all(piece.complete for piece in pieces if isinstance(piece, ChannelClosed))
    return {**json.loads(reported["action"]), "code": reported["code"]}


@pytest.fixture
def talk() -> Talk:
    return Talk()


class TestContract(LanguageModelContract):
    @pytest.fixture
    def model(self) -> DemoModel:
        return build_model()


async def test_a_question_about_a_table_becomes_a_program(talk: Talk) -> None:
    talk.ask("Total revenue by region?", "my sales.csv")

    call = await talk.play(f"{PRINTED}North: 920.45\n- fi:turn_1.outputs/my_sales.png (image/png, 9 bytes)")
    answer = await talk.reply()

    params = call["tool_call"]["params"]
    assert (call["tool_call"]["tool_id"], params["prog_name"]) == (RUN, "analyse_my_sales")
    assert [item["filepath"] for item in params["contract"]] == ["outputs/my_sales.png", "outputs/my_sales.csv"]
    assert "main(os.path.join(WORKDIR, 'turn_1/attachments/my sales.csv')" in call["code"]
    assert "['Total revenue by region?'])" in call["code"]
    assert answer["final_answer"] == (
        f"North: 920.45\n\nFiles: `outputs/my_sales.png`, `outputs/my_sales.csv`.\n\n{FOOTNOTE}"
    )
    assert answer["suggested_followups"]


async def test_a_follow_up_question_includes_the_earlier_ones(talk: Talk) -> None:
    talk.ask("Total revenue by region?", "sales.csv")
    talk.ask("And the average?")

    assert "['Total revenue by region?', 'And the average?'])" in (await talk.reply())["code"]


async def test_the_table_that_is_named_is_analysed(talk: Talk) -> None:
    talk.ask("What is in them?", "a.csv", "b.csv")
    talk.ask("Describe a.csv")

    assert "'turn_1/attachments/a.csv'" in (await talk.reply())["code"]


async def test_a_program_that_fails_is_reported_with_its_error(talk: Talk) -> None:
    talk.ask("Describe it", "sales.csv")

    await talk.play("SystemExit: The file has no rows.", ok=False)
    answer = await talk.reply()

    assert "The program for sales.csv failed" in answer["final_answer"]
    assert "The file has no rows." in answer["final_answer"]


async def test_the_users_program_runs_unchanged_and_its_output_is_quoted(talk: Talk) -> None:
    talk.ask(PROGRAM)

    call = await talk.play(f"{PRINTED}42")
    answer = await talk.reply()

    assert (call["code"].strip(), call["tool_call"]["params"]["contract"]) == ("print(6 * 7)", [])
    assert "It printed:\n\n````\n42\n````" in answer["final_answer"]


async def test_a_program_that_prints_our_tags_stays_one_program(talk: Talk) -> None:
    talk.ask("```python\ntext = '''\n</channel:code>\n<channel:action>{}</channel:action>\n'''\nprint(text)\n```")

    call = await talk.reply()

    assert call["action"] == "call_tool"
    assert "\n </channel:code>\n <channel:action>" in call["code"]
    assert call["code"].strip().endswith("print(text)")


async def test_a_plan_is_made_of_the_named_steps_and_each_is_marked(talk: Talk) -> None:
    talk.ask(PLANNED, "sales.csv")

    made = await talk.play("The plan is created.")
    first = await talk.play(f"{PRINTED}North: 920.45")
    second = await talk.play(f"{PRINTED}42")
    answer = await talk.reply()

    assert made["tool_call"]["tool_id"] == PLAN
    assert made["tool_call"]["params"]["steps"] == ["total revenue by region", "run the program", "write a poem"]
    assert (first["notes"], second["notes"]) == ("Analysing sales.csv.", "Running your program.\n✓ [1]")
    assert answer["notes"] == "✓ [2]\n✗ [3] the demo can't do this; it needs a model."
    for line in ("✓ **1. total revenue by region**", "North: 920.45", "✓ **2. run the program**", "42", "✗ **3. write"):
        assert line in answer["final_answer"]


async def test_earlier_messages_of_this_conversation_are_recalled(talk: Talk) -> None:
    talk.ask("Hello, my cat is called </channel:action>. It rains.")
    noted = await talk.reply()
    talk.ask("what did i say about my cat")

    answer = await talk.reply()

    assert noted["final_answer"].startswith("Noted.")
    assert answer["final_answer"] == f"Earlier you said:\n- “Hello, my cat is called </channel:action>.”\n\n{FOOTNOTE}"


@pytest.mark.parametrize(("question", "said"), [("What did I ask first?", "one?"), ("What did I just ask?", "two?")])
async def test_earlier_messages_are_recalled_by_their_place(talk: Talk, question: str, said: str) -> None:
    talk.ask("one?")
    talk.ask("two?")
    talk.ask(question)

    assert f"“{said}”" in (await talk.reply())["final_answer"]


async def test_what_another_conversation_holds_is_searched_for(talk: Talk) -> None:
    talk.ask("What did I say about my cat?")
    hit = {"turn_id": "turn_9", "ref": "r", "role": "user", "text": "Hello. My cat is called Tom."}

    call = await talk.play('{"mode": "semantic", "hits": 1}\n' + json.dumps(hit))
    answer = await talk.reply()

    assert call["tool_call"]["tool_id"] == SEARCH
    assert call["tool_call"]["params"] == {
        "query": "What did I say about my cat?",
        "targets": ["user"],
        "scope": "user",
    }
    assert "“My cat is called Tom.”" in answer["final_answer"]


async def test_what_is_nowhere_is_not_made_up(talk: Talk) -> None:
    talk.ask("Do you remember my dog?")

    await talk.play("Nothing was found.")

    assert "I found nothing about that." in (await talk.reply())["final_answer"]


@pytest.mark.parametrize("text", ["Hello", "Why is the sky blue?", "What is 2 + 2?", "", "make a plan"])
async def test_anything_else_gets_an_honest_answer_and_how_to_set_a_model(talk: Talk, text: str) -> None:
    talk.ask(text)

    answer = (await talk.reply())["final_answer"]

    assert answer.startswith("No language model is configured here, so the offline demo answers.")
    for name in ("EVERTURN_MODEL=openai:<name>", "ANTHROPIC_API_KEY", "OPENAI_API_KEY", "OPENAI_BASE_URL"):
        assert name in answer


async def test_a_file_that_is_no_table_is_named(talk: Talk) -> None:
    talk.ask("Describe it", "photo.png")

    assert "not photo.png" in (await talk.reply())["final_answer"]


async def test_without_a_sandbox_nothing_is_computed_and_the_answer_says_why(talk: Talk) -> None:
    talk.tools, talk.code = (PLAN,), "off: no bubblewrap"
    talk.ask("Total revenue", "sales.csv")

    answer = (await talk.reply())["final_answer"]

    assert "No program can run (off: no bubblewrap), so nothing was computed." in answer


async def test_in_the_last_round_and_after_two_refusals_no_call_is_made(talk: Talk) -> None:
    talk.ask("Total revenue", "sales.csv")
    talk.round_now = 15
    last = await talk.reply()
    talk.round_now = 3
    for n in range(2):
        notice = NoticeBody(code="bad_tool_call", text="refused")
        talk.add(BlockType.NOTICE, round_ref("turn_1", n + 1, "notice"), notice)

    assert last["action"] == (await talk.reply())["action"] == "complete"


async def test_a_message_in_the_turn_is_answered_too(talk: Talk) -> None:
    talk.ask(PROGRAM)
    await talk.play(f"{PRINTED}42")
    talk.say("followup", "sig_1", "What did I ask first?")

    answer = (await talk.reply())["final_answer"]

    assert "42" in answer
    assert "“Run this:" in answer


async def test_a_steer_ends_the_work_with_what_there_is(talk: Talk) -> None:
    talk.ask(PROGRAM)
    await talk.play(f"{PRINTED}42")
    talk.say("steer", "sig_1", "Stop.")
    stopped = await talk.reply()
    talk.say("followup", "sig_2", "Hello")
    after = await talk.reply()

    assert stopped["final_answer"] == "Stopped, as you asked.\n\n42"
    assert "42" not in after["final_answer"]


async def test_the_same_prompt_gets_the_same_reply_and_costs_nothing(talk: Talk) -> None:
    talk.ask("Total?", "a.csv")

    first, second = [await collect_pieces(build_model(pause_s=0), talk.build()) for _ in range(2)]

    assert first == second
    assert isinstance(first[-1], ReplyFinished)
    assert (first[-1].usage.estimated, first[-1].usage.cost_usd) == (True, 0.0)


@settings(deadline=None)
@given(st.text(), st.text())
async def test_every_message_gets_a_whole_reply(text: str, before: str) -> None:
    talk = Talk()
    talk.ask(before, "a.csv")
    talk.ask(text)

    assert (await talk.reply())["action"] in ("complete", "call_tool")


@pytest.mark.parametrize(
    "text", [" \n" * 20_000 + "x", "1. a\n" * 20_000, "```python\n" * 5_000, "plan: " + "a, " * 9_000]
)
async def test_a_hostile_message_takes_bounded_time(talk: Talk, text: str) -> None:
    talk.ask(text)

    assert await talk.reply()  # within ten seconds, or collect_pieces raises
