"""The rules choose the next reply: plan, program, second try, answer."""

import json
from typing import TYPE_CHECKING

import pytest

from chat_proc.models.offline.answers import FOOTNOTE
from chat_proc.models.offline.decide import decide
from chat_proc.models.offline.reading import read_conversation
from chat_proc.models.offline.reply import Answer, NewPlan, Reply, RunCode, WriteNote

if TYPE_CHECKING:
    from tests.unit.chat_proc.models.offline.conftest import PromptBuilder

REVENUE = {"total": 30, "mean": 15, "min": 10, "max": 20, "median": 15, "count": 2, "missing": 0}
RESULT = "RESULT " + json.dumps(
    {
        "file": "sales.csv",
        "rows": 2,
        "used_rows": 2,
        "columns": ["region", "revenue"],
        "figures": ["total"],
        "totals": {"revenue": REVENUE},
    }
)


def decide_for(prompt: "PromptBuilder") -> Reply:
    return decide(read_conversation(prompt.build()))


@pytest.fixture
def sales(prompt: "PromptBuilder") -> "PromptBuilder":
    return prompt.turn("turn_1", "Total revenue by region?").attach("sales.csv", "region,revenue\nNorth,10")


def test_who_cannot_see_what_was_asked_says_so_and_never_answers_with_nothing(prompt: "PromptBuilder") -> None:
    reply = decide_for(prompt.block("[TURN turn_1]").block("[MID-TURN CHECKPOINT]\npath=ar:x; stands for rounds"))

    assert isinstance(reply, Answer) and reply.text.startswith("I can't see what you asked")


def test_a_question_about_a_table_runs_a_program_first(sales: "PromptBuilder") -> None:
    reply = decide_for(sales)

    assert isinstance(reply, RunCode)
    assert reply.program.name == "analyse_sales"
    assert '"turn_1/attachments/sales.csv"' in reply.program.code
    assert (reply.thinking, reply.notes) == ("I compute total by region from sales.csv.", "Analysing sales.csv.")


def test_the_result_of_the_program_is_the_answer(sales: "PromptBuilder") -> None:
    reply = decide_for(sales.ran(1, "analyse_sales", RESULT))

    assert isinstance(reply, Answer)
    assert "- **revenue**: total 30 (2 values)" in reply.text
    assert "`outputs/sales.png`, `outputs/sales.csv`" in reply.text
    assert reply.text.endswith(FOOTNOTE)
    assert reply.followups
    assert "Total revenue by region?" in reply.summary


def test_a_failed_program_is_tried_once_more_without_a_chart(sales: "PromptBuilder") -> None:
    again = decide_for(sales.ran(1, "analyse_sales", "ImportError: matplotlib", ok=False))
    answer = decide_for(sales.ran(2, "analyse_sales_again", RESULT))

    assert isinstance(again, RunCode)
    assert again.program.name == "analyse_sales_again"
    assert [path for path, _ in again.program.outputs] == ["outputs/sales_again.csv"]
    assert isinstance(answer, Answer)
    assert "Files: `outputs/sales_again.csv`." in answer.text


def test_after_the_second_failure_the_answer_explains(sales: "PromptBuilder") -> None:
    sales.ran(1, "analyse_sales", "first", ok=False).ran(2, "analyse_sales_again", "MemoryError", ok=False)

    reply = decide_for(sales)

    assert isinstance(reply, Answer)
    assert "failed, also the second time" in reply.text
    assert "MemoryError" in reply.text


def test_a_call_that_lost_its_result_is_made_again(sales: "PromptBuilder") -> None:
    reply = decide_for(sales.call(1, "exec_tools.execute_code_python", prog_name="analyse_sales"))

    assert isinstance(reply, RunCode)
    assert reply.program.name == "analyse_sales_again"


def test_without_the_code_tool_nothing_is_computed_and_the_answer_says_so(sales: "PromptBuilder") -> None:
    sales.tools = ("react.read",)
    sales.code = "off: no bubblewrap."

    reply = decide_for(sales)

    assert isinstance(reply, Answer)
    assert "sales.csv. Its first line names the columns region, revenue." in reply.text
    assert "The code tool is not offered here (off: no bubblewrap)" in reply.text
    assert "`make doctor`" in reply.text


def test_in_the_last_round_the_turn_is_closed_with_what_there_is(sales: "PromptBuilder") -> None:
    sales.iteration = "15/15"

    assert isinstance(decide_for(sales), Answer)


def test_after_two_notices_no_call_is_tried(sales: "PromptBuilder") -> None:
    sales.block("[react.notice] refused").block("[react.notice]\nrefused again")

    reply = decide_for(sales)

    assert isinstance(reply, Answer)
    assert "could not run a program" in reply.text


def test_a_followup_in_the_turn_is_worked_on_and_answered_too(sales: "PromptBuilder") -> None:
    sales.ran(1, "analyse_sales", RESULT).say("followup", "And the average as a chart?")
    second = decide_for(sales)
    answer = decide_for(sales.ran(2, "analyse_sales_2", RESULT.replace('"figures": ["total"]', '"figures": ["mean"]')))

    assert isinstance(second, RunCode)
    assert second.program.name == "analyse_sales_2"
    assert isinstance(answer, Answer)
    assert "total 30" in answer.text
    assert "average 15" in answer.text


def test_a_followup_that_the_result_answers_needs_no_second_program(sales: "PromptBuilder") -> None:
    reply = decide_for(sales.ran(1, "analyse_sales", RESULT).say("followup", "And the average?"))

    assert isinstance(reply, Answer)
    assert "The average revenue is 15." in reply.text


def test_a_steer_ends_the_turn_with_what_there_is(sales: "PromptBuilder") -> None:
    sales.ran(1, "analyse_sales", RESULT).say("steer", "stop, that is enough")

    reply = decide_for(sales)

    assert isinstance(reply, Answer)
    assert "“stop, that is enough”" in reply.text
    assert "total 30" in reply.text


def test_a_blank_steer_before_any_result_stops(sales: "PromptBuilder") -> None:
    reply = decide_for(sales.say("steer", ""))

    assert isinstance(reply, Answer)
    assert "Stopped, as you asked." in reply.text
    assert "no result yet" in reply.text


def test_the_users_program_is_run_once_and_its_output_told(prompt: "PromptBuilder") -> None:
    prompt.turn("turn_1", "```python\nprint(6 * 7)\n```")
    run = decide_for(prompt)
    answer = decide_for(prompt.ran(1, "user_program", "The program ended well after 9 ms.\n--- printed ---\n42"))

    assert isinstance(run, RunCode)
    assert run.program.code == "print(6 * 7)\n"
    assert isinstance(answer, Answer)
    assert "```\n42\n```" in answer.text


def test_an_error_of_the_users_program_is_told_not_repaired(prompt: "PromptBuilder") -> None:
    prompt.turn("turn_1", "```python\n1/0\n```").ran(1, "user_program", "ZeroDivisionError", ok=False)

    reply = decide_for(prompt)

    assert isinstance(reply, Answer)
    assert "ZeroDivisionError" in reply.text


def test_a_plan_is_made_followed_and_ticked_off(prompt: "PromptBuilder") -> None:
    prompt.turn("turn_1", "Make a plan, then total the revenue").attach("sales.csv", "region,revenue")
    plan = decide_for(prompt)
    prompt.call(1, "react.plan", mode="new").result(1, "plan_1")
    prompt.plan = "plan_id=plan_1 (current)\n□ [1] Look\n□ [2] Compute\n□ [3] Answer"
    run = decide_for(prompt)
    prompt.plan = "plan_id=plan_1 (current)\n✓ [1] Look\n□ [2] Compute\n□ [3] Answer"
    answer = decide_for(prompt.ran(2, "analyse_sales", RESULT))

    assert isinstance(plan, NewPlan)
    assert plan.steps[0] == "Look at the columns of sales.csv"
    assert isinstance(run, RunCode)
    assert run.notes.endswith("\n✓ [1]")
    assert isinstance(answer, Answer)
    assert answer.notes == "✓ [2]\n✓ [3]"
    assert answer.text.startswith("The plan:\n1. Look\n2. Compute\n3. Answer")


def test_steps_of_a_plan_that_failed_are_crossed(prompt: "PromptBuilder") -> None:
    prompt.turn("turn_1", "Make a plan and run\n```python\n1/0\n```").call(1, "react.plan").result(1, "plan_1")
    prompt.ran(2, "user_program", "ZeroDivisionError", ok=False)
    prompt.plan = "plan_id=plan_1 (current)\n✓ [1] Read\n□ [2] Run"

    reply = decide_for(prompt)

    assert isinstance(reply, Answer)
    assert reply.notes == "✗ [2]"


def test_named_steps_are_done_one_by_one_and_ticked_off(prompt: "PromptBuilder") -> None:
    prompt.turn("turn_1", "Make a plan with three steps: greet me, compute 2+2, say goodbye")
    plan = decide_for(prompt)
    prompt.call(1, "react.plan").result(1, "plan_1")
    prompt.plan = "plan_id=plan_1 (current)\n□ [1] greet me\n□ [2] compute 2+2\n□ [3] say goodbye"
    first = decide_for(prompt)
    prompt.plan = prompt.plan.replace("□ [1]", "✓ [1]")
    second = decide_for(prompt.call(2, "react.write").result(2, "Written."))
    prompt.plan = prompt.plan.replace("□ [2]", "✓ [2]")
    answer = decide_for(prompt.call(3, "react.write").result(3, "Written."))

    assert isinstance(plan, NewPlan)
    assert plan.steps == ("greet me", "compute 2+2", "say goodbye")
    assert isinstance(first, WriteNote)
    assert (first.notes, first.path) == ("Hello!\n✓ [1]", "files/step_1.md")
    assert isinstance(second, WriteNote)
    assert second.notes == "2 + 2 = 4\n✓ [2]"
    assert isinstance(answer, Answer)
    assert answer.notes == "✓ [3]"
    assert answer.text.startswith(
        "✓ 1. **greet me**: Hello!\n\n✓ 2. **compute 2+2**: 2 + 2 = 4\n\n✓ 3. **say goodbye**: Goodbye!"
    )


def test_a_step_with_a_program_is_ticked_off_when_its_result_is_there(sales: "PromptBuilder") -> None:
    sales.turn("turn_2", "Make a plan: revenue by region as a chart, greet me, tell me the average revenue")
    sales.call(1, "react.plan").result(1, "plan_1")
    sales.plan = "plan_id=plan_1 (current)\n□ [1] revenue\n□ [2] greet me\n□ [3] tell"
    run = decide_for(sales)
    note = decide_for(sales.ran(2, "analyse_sales", RESULT))

    assert isinstance(run, RunCode)
    assert run.notes == "Analysing sales.csv."
    assert isinstance(note, WriteNote)
    assert note.notes == "Hello!\n✓ [1]\n✓ [2]"


def test_a_step_that_no_rule_can_do_is_crossed_with_the_reason(prompt: "PromptBuilder") -> None:
    prompt.turn("turn_1", "Make a plan:\n1. Book a flight\n2. Say goodbye").call(1, "react.plan").result(1, "plan_1")
    prompt.plan = "plan_id=plan_1 (current)\n□ [1] Book a flight\n□ [2] Say goodbye"

    answer = decide_for(prompt)

    assert isinstance(answer, Answer)
    assert answer.notes == "✗ [1] no rule can do this; it needs a real model.\n✓ [2]"
    assert "✗ 1. **Book a flight**: no rule can do this; it needs a real model." in answer.text


def test_without_the_write_tool_the_steps_are_ticked_off_together(prompt: "PromptBuilder") -> None:
    prompt.tools = ("react.plan",)
    prompt.turn("turn_1", "Plan: greet me, say goodbye").call(1, "react.plan").result(1, "plan_1")
    prompt.plan = "plan_id=plan_1 (current)\n□ [1] greet me\n□ [2] say goodbye"

    answer = decide_for(prompt)

    assert isinstance(answer, Answer)
    assert answer.notes == "✓ [1]\n✓ [2]"


def test_two_questions_in_one_message_are_both_answered(sales: "PromptBuilder") -> None:
    sales.ran(1, "analyse_sales", RESULT).answered("- **revenue**: total 30 (2 values)")
    sales.turn("turn_2", "What was the total revenue? What did I ask first?")

    reply = decide_for(sales)

    assert isinstance(reply, Answer)
    assert "The total revenue is 30.\n\nYou first asked: “Total revenue by region?”" in reply.text


def test_a_question_among_others_that_no_rule_fits_is_named(prompt: "PromptBuilder") -> None:
    reply = decide_for(prompt.turn("turn_1", "What is 2+2? Where is my cat?"))

    assert isinstance(reply, Answer)
    assert "2 + 2 = 4" in reply.text
    assert "I can't answer “Where is my cat?”" in reply.text


def test_the_model_introduces_itself_once(prompt: "PromptBuilder") -> None:
    first = decide_for(prompt.turn("turn_1", "Tell me a joke"))
    assert isinstance(first, Answer)

    second = decide_for(prompt.answered(first.text).turn("turn_2", "Tell me another joke"))

    assert "I am Everturn's offline model" in first.text
    assert isinstance(second, Answer)
    assert second.text.startswith("I have no rule for that. Attach a CSV file")
    assert second.text.endswith(FOOTNOTE)


def test_an_answer_has_no_note_when_there_is_nothing_to_note(prompt: "PromptBuilder") -> None:
    reply = decide_for(prompt.turn("turn_1", "what is 17*23?"))

    assert isinstance(reply, Answer)
    assert (reply.notes, reply.text) == ("", f"17 * 23 = 391\n\n{FOOTNOTE}")


def test_a_later_turn_computes_from_the_file_of_the_earlier_one(sales: "PromptBuilder") -> None:
    sales.ran(1, "analyse_sales", RESULT).answered("- **revenue**: total 30")
    sales.turn("turn_2", "And by region?")

    reply = decide_for(sales)

    assert isinstance(reply, RunCode)
    assert '"turn_1/attachments/sales.csv"' in reply.program.code
    assert '"measures": ["revenue"]' in reply.program.code


def test_a_figure_of_the_last_result_is_told(sales: "PromptBuilder") -> None:
    sales.ran(1, "analyse_sales", RESULT).answered("- **revenue**: total 30 (2 values)")
    sales.turn("turn_2", "What was the total revenue?")

    reply = decide_for(sales)

    assert isinstance(reply, Answer)
    assert "The total revenue is 30." in reply.text


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("Hello!", "offline model"),
        ("What did I ask first?", "first message"),
        ("Remember that I like tea.", "Noted"),
        ("Do you remember my cat?", "I find nothing about that"),
        ("", "offline model"),
    ],
)
def test_talk_is_answered_honestly(prompt: "PromptBuilder", text: str, part: str) -> None:
    reply = decide_for(prompt.turn("turn_1", text))

    assert isinstance(reply, Answer)
    assert part in reply.text


def test_a_file_it_can_not_read_is_named(prompt: "PromptBuilder") -> None:
    reply = decide_for(prompt.turn("turn_1", "What is this?").attach("cat.png", mime="image/png"))

    assert isinstance(reply, Answer)
    assert "I can't read cat.png" in reply.text
