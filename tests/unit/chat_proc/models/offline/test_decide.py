"""The rules choose the next reply: plan, program, second try, answer."""

import json
from typing import TYPE_CHECKING

import pytest

from chat_proc.models.offline.answers import FOOTNOTE
from chat_proc.models.offline.decide import decide
from chat_proc.models.offline.reading import read_conversation
from chat_proc.models.offline.reply import Answer, NewPlan, Reply, RunCode

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


def test_a_question_about_a_table_runs_a_program_first(sales: "PromptBuilder") -> None:
    reply = decide_for(sales)

    assert isinstance(reply, RunCode)
    assert reply.program.name == "analyse_sales"
    assert '"turn_1/attachments/sales.csv"' in reply.program.code
    assert "Named in the question: region, revenue. I compute total by region." in reply.thinking


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

    reply = decide_for(sales)

    assert isinstance(reply, Answer)
    assert "sales.csv. Its first line names the columns region, revenue." in reply.text
    assert "not offered" in reply.text


def test_in_the_last_round_the_turn_is_closed_with_what_there_is(sales: "PromptBuilder") -> None:
    sales.iteration = "15/15"

    assert isinstance(decide_for(sales), Answer)


def test_after_two_notices_no_call_is_tried(sales: "PromptBuilder") -> None:
    sales.block("[react.notice] refused").block("[react.notice]\nrefused again")

    reply = decide_for(sales)

    assert isinstance(reply, Answer)
    assert "could not run a program" in reply.text


def test_a_followup_in_the_turn_is_worked_on_and_answered_too(sales: "PromptBuilder") -> None:
    sales.ran(1, "analyse_sales", RESULT).say("followup", "And the average?")
    second = decide_for(sales)
    answer = decide_for(sales.ran(2, "analyse_sales_2", RESULT.replace('"figures": ["total"]', '"figures": ["mean"]')))

    assert isinstance(second, RunCode)
    assert second.program.name == "analyse_sales_2"
    assert isinstance(answer, Answer)
    assert "total 30" in answer.text
    assert "mean 15" in answer.text


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
    answer = decide_for(prompt.ran(1, "user_program", "42"))

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
    assert answer.notes.endswith("\n✓ [2]\n✓ [3]")
    assert answer.text.startswith("The plan:\n1. Look\n2. Compute\n3. Answer")


def test_steps_of_a_plan_that_failed_are_crossed(prompt: "PromptBuilder") -> None:
    prompt.turn("turn_1", "Make a plan and run\n```python\n1/0\n```").call(1, "react.plan").result(1, "plan_1")
    prompt.ran(2, "user_program", "ZeroDivisionError", ok=False)
    prompt.plan = "plan_id=plan_1 (current)\n✓ [1] Read\n□ [2] Run"

    reply = decide_for(prompt)

    assert isinstance(reply, Answer)
    assert reply.notes.endswith("\n✗ [2]")


def test_steps_that_no_rule_can_carry_out_stay_open(prompt: "PromptBuilder") -> None:
    prompt.turn("turn_1", "Make a plan:\n1. Book a flight\n2. Pack")
    plan = decide_for(prompt)
    prompt.call(1, "react.plan").result(1, "plan_1")
    prompt.plan = "plan_id=plan_1 (current)\n□ [1] Book a flight\n□ [2] Pack"
    answer = decide_for(prompt)

    assert isinstance(plan, NewPlan)
    assert plan.steps == ("Book a flight", "Pack")
    assert isinstance(answer, Answer)
    assert "they stay open" in answer.text
    assert "✓" not in answer.notes


def test_a_later_turn_computes_from_the_file_of_the_earlier_one(sales: "PromptBuilder") -> None:
    sales.ran(1, "analyse_sales", RESULT).answered("- **revenue**: total 30")
    sales.turn("turn_2", "And by region?")

    reply = decide_for(sales)

    assert isinstance(reply, RunCode)
    assert '"turn_1/attachments/sales.csv"' in reply.program.code
    assert "Total revenue by region?" in reply.program.code


def test_a_figure_that_was_told_before_is_recalled(sales: "PromptBuilder") -> None:
    sales.ran(1, "analyse_sales", RESULT).answered("- **revenue**: total 30 (2 values)")
    sales.turn("turn_2", "What was the total revenue?")

    reply = decide_for(sales)

    assert isinstance(reply, Answer)
    assert "total 30" in reply.text


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
