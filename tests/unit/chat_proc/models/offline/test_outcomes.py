"""What became of a task is told honestly, and which program it still needs is known."""

import json
from typing import TYPE_CHECKING

import pytest

from chat_proc.models.offline.outcomes import Outcome, is_second_try, report, try_program
from chat_proc.models.offline.questions import ProgramTask
from chat_proc.models.offline.reading import Ask, read_conversation
from chat_proc.models.offline.tasks import read_tasks

if TYPE_CHECKING:
    from tests.unit.chat_proc.models.offline.conftest import PromptBuilder


def report_first(prompt: "PromptBuilder", *, alone: bool = True) -> Outcome:
    conversation = read_conversation(prompt.build())
    return report(read_tasks(conversation)[0], conversation, alone=alone)


def test_a_table_gets_a_second_program_after_a_failure_and_no_third(prompt: "PromptBuilder") -> None:
    prompt.turn("turn_1", "Total?").attach("a.csv")
    programs = []
    for number, name in enumerate(["analyse_a", "analyse_a_again", ""], 1):
        conversation = read_conversation(prompt.build())
        programs.append(try_program(read_tasks(conversation)[0], conversation))
        prompt.ran(number, name, "MemoryError", ok=False)

    first, second, third = programs
    assert first is not None
    assert not is_second_try(first)
    assert second is not None
    assert is_second_try(second)
    assert third is None


def test_without_the_code_tool_no_program_is_needed(prompt: "PromptBuilder") -> None:
    prompt.tools = ()
    conversation = read_conversation(prompt.turn("turn_1", "go").build())

    assert try_program(ProgramTask(Ask("prompt", "go"), 1, "print(1)"), conversation) is None


def test_a_program_whose_end_is_unknown_is_told_as_such(prompt: "PromptBuilder") -> None:
    prompt.turn("turn_1", "```python\n1\n```").call(1, "exec_tools.execute_code_python", prog_name="user_program")

    assert report_first(prompt) == Outcome("Your program was started, but it is not known how it ended.", ok=False)


@pytest.mark.parametrize(
    ("text", "alone", "told"),
    [
        ("hi", True, "Hello! Attach a CSV file"),
        ("hi", False, "Hello!"),
        ("Tell me a joke", True, "I have no rule for that."),
        ("Tell me a joke", False, "I can't answer “Tell me a joke”"),
    ],
)
def test_talk_is_answered_at_length_only_when_it_is_all_there_is(
    prompt: "PromptBuilder", text: str, alone: bool, told: str
) -> None:
    assert report_first(prompt.turn("turn_1", text), alone=alone).text.startswith(told)


@pytest.mark.parametrize("text", ["Please analyse my data", "plot a chart", "What is the average age?"])
def test_without_a_file_the_answer_says_how_to_attach_one(prompt: "PromptBuilder", text: str) -> None:
    assert "no CSV file in this conversation yet" in report_first(prompt.turn("turn_1", text)).text


def test_a_file_that_is_no_table_is_named_by_its_name_whatever_its_encoding(prompt: "PromptBuilder") -> None:
    prompt.turn("turn_1", "Totals").attach("notes", mime="text/plain; charset=utf-16le")

    assert report_first(prompt).text.startswith("I can't read notes. I can read only CSV and TSV files.")


def test_a_column_that_is_not_there_is_told_with_those_that_are(prompt: "PromptBuilder") -> None:
    prompt.turn("turn_1", "hi").attach("a.csv", "name,salary").answered("…").turn("turn_2", "What is the average age?")

    assert "I found nothing in a.csv that matches this; its columns are name, salary." in report_first(prompt).text


def test_a_followup_is_not_suggested_again(prompt: "PromptBuilder") -> None:
    rows = [{"name": name, "rows": 1, "values": {"x": {"total": total}}} for name, total in (("a", 1), ("b", 2))]
    known = {"file": "t.csv", "totals": {"x": {"total": 3}}, "group": "g", "by": [["g", None]], "groups": rows}
    report_text = f"RESULT {json.dumps(known | {'group_count': 2})}"
    prompt.turn("turn_1", "x by g").attach("t.csv").ran(1, "analyse_t", report_text).answered("…")

    outcome = report_first(prompt.turn("turn_2", "which was best?"))

    assert outcome.text.startswith("**b** has the highest total x by g: 2.")
    assert "Which was best?" not in outcome.followups
