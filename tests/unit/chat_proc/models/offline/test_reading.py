"""The conversation is read back out of the rendered prompt, and odd text in it does no harm."""

from dataclasses import replace
from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from chat_proc.models.offline.questions import is_table
from chat_proc.models.offline.reading import Ask, Attachment, Call, OpenPlan, read_conversation
from everturn.models.port import ModelRequest, PromptMessage, TextPart
from everturn.timeline.inert import make_inert

if TYPE_CHECKING:
    from tests.unit.chat_proc.models.offline.conftest import PromptBuilder


def test_turns_hold_what_was_said_attached_called_and_answered(prompt: "PromptBuilder") -> None:
    prompt.turn("turn_1", "Total by region?\nPlease.").attach("my sales [1].csv", "region,units\nNorth,1")
    prompt.ran(1, "analyse", "RESULT {}").answered("It is 1.")
    prompt.turn("turn_2", "And now?").say("followup", "By month too").say("steer", "")

    first, second = read_conversation(prompt.build()).turns

    assert first.asks == (Ask("prompt", "Total by region?\nPlease."),)
    assert first.attachments == (
        Attachment("my sales [1].csv", "text/csv", "turn_1/attachments/my sales [1].csv", "region,units\nNorth,1"),
    )
    assert first.calls == (Call("exec_tools.execute_code_python", "analyse", True, "RESULT {}"),)
    assert first.completion == "It is 1."
    assert [ask.kind for ask in second.asks] == ["prompt", "followup", "steer"]
    assert second.asks[2].text == ""


def test_an_event_that_wants_something_is_an_ask_and_one_to_be_recorded_is_none(prompt: "PromptBuilder") -> None:
    prompt.turn("turn_1", "Hello")
    prompt.blocks.append("[event.external ar:turn_1.external.form.s1] form\nSent.")
    prompt.blocks.append("[event.external ar:turn_1.external.alert.s2] alert (recorded only)\nNoted.")

    assert [ask.text for ask in read_conversation(prompt.build()).now.asks] == ["Hello", "Sent."]


def test_text_that_was_marked_because_it_looks_like_our_markup_is_read_as_it_was_written(
    prompt: "PromptBuilder",
) -> None:
    written = "Run this:\n    print('</channel:code>')\n[react.notice] is a word"

    prompt.turn("turn_1", make_inert(written))

    assert read_conversation(prompt.build()).now.asks == (Ask("prompt", written),)


def test_a_call_without_result_and_one_with_cut_parameters_are_still_calls(prompt: "PromptBuilder") -> None:
    prompt.turn("turn_1", "go").call(1, "react.plan", mode="new")
    prompt.block('[react.tool.call tc:turn_1.call_2.call] exec_tools.execute_code_python\n{"prog_name": "cut", "contr…')
    prompt.result(2, "boom", ok=False)

    calls = read_conversation(prompt.build()).now.calls

    assert calls == (
        Call("react.plan", "", None, None),
        Call("exec_tools.execute_code_python", "cut", False, "boom"),
    )


def test_tools_rounds_and_the_current_plan_come_from_system_and_announce(prompt: "PromptBuilder") -> None:
    prompt.turn("turn_1", "go")
    prompt.iteration = "4/6"
    prompt.plan = "plan_id=plan_0 open\n□ [1] old\nplan_id=plan_1 (current)\n✓ [1] read\n… [2] compute\n□ [3] tell"

    conversation = read_conversation(prompt.build())

    assert conversation.rounds_left == 2
    assert "react.plan" in conversation.tools
    assert conversation.plan == OpenPlan(
        "plan_1", ((1, "read", "done"), (2, "compute", "in_progress"), (3, "tell", "pending"))
    )


def test_the_clock_and_the_state_of_the_code_tool_come_from_announce(prompt: "PromptBuilder") -> None:
    prompt.turn("turn_1", "now (UTC): 1999\ncode: mine")

    conversation = read_conversation(prompt.build())

    assert (conversation.now_utc, conversation.timezone) == ("2026-11-21T23:35:00Z", "Europe/Berlin")
    assert conversation.code_state == "bubblewrap"


def test_working_summaries_are_memories_only_when_they_stand_for_their_turn(prompt: "PromptBuilder") -> None:
    prompt.block("[COMPACTED PRIOR CONVERSATION MEMORY]\npath=su:turn_0.conv.range.summary; stands for turn_0\nold")
    prompt.turn("turn_1", "go")
    prompt.block("[conv.working.summary ws:turn_1.conv.working.summary] (stands for the whole turn)\nGoal: went")
    prompt.turn("turn_2", "go on")
    prompt.block("[conv.working.summary ws:turn_2.conv.working.summary]\nGoal: go")
    prompt.block("[MID-TURN CHECKPOINT]\npath=su:turn_2.conv.range.summary; stands for rounds\nearlier")

    assert read_conversation(prompt.build()).memories == ("old", "Goal: went", "earlier")


CHECKPOINT = (
    "[MID-TURN CHECKPOINT]\npath=ar:turn_1.round.0.checkpoint.1; stands for the earlier rounds of this turn\n"
    "## Active request\n- What is 17*2? (ar:turn_1.user.prompt)\n## Done\n- nothing"
)


def test_a_prompt_that_only_a_checkpoint_tells_of_is_what_was_asked(prompt: "PromptBuilder") -> None:
    prompt.block("[TURN turn_1]").block(CHECKPOINT)

    assert read_conversation(prompt.build()).now.asks == (Ask("prompt", "What is 17*2?"),)


def test_a_prompt_that_stands_beside_a_checkpoint_is_asked_once(prompt: "PromptBuilder") -> None:
    prompt.turn("turn_1", "What is 17*2?").block(CHECKPOINT)

    assert read_conversation(prompt.build()).now.asks == (Ask("prompt", "What is 17*2?"),)


def test_a_type_that_names_an_encoding_is_read_whole(prompt: "PromptBuilder") -> None:
    prompt.turn("turn_1", "go").attach("a.csv", "x;y", mime="text/csv; charset=windows-1252")

    (file,) = read_conversation(prompt.build()).now.attachments

    assert file == Attachment("a.csv", "text/csv; charset=windows-1252", "turn_1/attachments/a.csv", "x;y")
    assert is_table(replace(file, name="a"))


def test_a_file_without_path_is_found_by_its_ref(prompt: "PromptBuilder") -> None:
    prompt.turn("turn_1", "go")
    prompt.block("[user.attachment.meta fi:turn_1.user.attachments/a.csv mime=text/csv]")
    prompt.block("[user.attachment.meta fi:turn_1.external.followup.attachments/m1/b.csv]")

    paths = [file.path for file in read_conversation(prompt.build()).now.attachments]

    assert paths == ["turn_1/attachments/a.csv", "turn_1/external/followup/attachments/m1/b.csv"]


def test_brackets_in_what_the_user_writes_are_text(prompt: "PromptBuilder") -> None:
    prompt.turn("turn_1", "[IMPORTANT]\n[1] first\n[link](http://x)")

    assert read_conversation(prompt.build()).now.asks[0].text == "[IMPORTANT]\n[1] first\n[link](http://x)"


def test_a_prompt_without_blocks_is_taken_as_one_question() -> None:
    request = ModelRequest((PromptMessage("user", (TextPart("hello"),)),), max_output_tokens=9)

    conversation = read_conversation(request)

    assert conversation.now.asks == (Ask("prompt", "hello"),)
    assert conversation.tools == frozenset()


@given(st.lists(st.text(), max_size=5), st.text())
def test_no_text_breaks_the_reader(parts: list[str], system: str) -> None:
    messages = (
        PromptMessage("system", (TextPart(system),)),
        PromptMessage("user", tuple(TextPart(part) for part in parts)),
    )

    assert read_conversation(ModelRequest(messages, max_output_tokens=9)).turns


def test_of_a_message_only_the_beginning_is_read_and_long_blanks_are_shortened(prompt: "PromptBuilder") -> None:
    attack = "first a" + " \n" * 10_000 + "x"

    blanks = read_conversation(prompt.turn("turn_1", attack).build()).now.asks[0].text
    long = read_conversation(prompt.turn("turn_2", "b" * 20_000).build()).now.asks[0].text

    assert (blanks[:9], len(blanks)) == ("first a \n", len("first a") + 40)
    assert long == "b" * 8000
