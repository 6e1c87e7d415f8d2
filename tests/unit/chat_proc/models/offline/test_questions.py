"""What the user wants is understood by rules."""

import json
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chat_proc.models.offline.questions import (
    KnownTask,
    ProgramTask,
    TableTask,
    TalkTask,
    find_last_result,
    is_table,
    read_columns,
    read_program_step,
    read_task,
    split_program,
)
from chat_proc.models.offline.reading import Ask, Attachment, read_conversation
from chat_proc.models.offline.tasks import read_tasks

if TYPE_CHECKING:
    from tests.unit.chat_proc.models.offline.conftest import PromptBuilder


def test_a_fenced_program_is_to_be_run(prompt: "PromptBuilder") -> None:
    prompt.turn("turn_1", "Run this:\n```python\nprint(1)\n```\nthanks")

    (task,) = read_tasks(read_conversation(prompt.build()))

    assert isinstance(task, ProgramTask)
    assert task.code == "print(1)\n"


def test_an_attached_table_is_what_the_question_is_about(prompt: "PromptBuilder") -> None:
    prompt.turn("turn_1", "What do you see?").attach("a.csv", "x;y\n1;2").attach("b.tsv", "p\tq", mime="")

    (task,) = read_tasks(read_conversation(prompt.build()))

    assert isinstance(task, TableTask)
    assert (task.table.name, task.columns) == ("b.tsv", ("p", "q"))


def test_a_table_that_is_named_wins_over_the_newest(prompt: "PromptBuilder") -> None:
    prompt.turn("turn_1", "Total in a.csv?").attach("a.csv").attach("b.csv")

    (task,) = read_tasks(read_conversation(prompt.build()))

    assert isinstance(task, TableTask)
    assert task.table.name == "a.csv"


def test_a_later_question_may_be_about_a_table_of_an_earlier_turn(prompt: "PromptBuilder") -> None:
    prompt.turn("turn_1", "Total revenue?").attach("a.csv", "region,revenue").answered("1")
    prompt.turn("turn_2", "And by region?")

    (task,) = read_tasks(read_conversation(prompt.build()))

    assert isinstance(task, TableTask)
    assert task.table.path == "turn_1/attachments/a.csv"


def test_talk_is_not_about_an_old_table(prompt: "PromptBuilder") -> None:
    prompt.turn("turn_1", "Total revenue?").attach("a.csv", "region,revenue").answered("1")
    prompt.turn("turn_2", "Thanks, tell me a joke")

    assert isinstance(read_tasks(read_conversation(prompt.build()))[0], TalkTask)


def test_what_came_before_a_steer_is_dropped(prompt: "PromptBuilder") -> None:
    prompt.turn("turn_1", "Total?").attach("a.csv").say("followup", "By region").say("steer", "Stop")

    tasks = read_tasks(read_conversation(prompt.build()))

    assert [(type(task), task.ask.kind) for task in tasks] == [(TalkTask, "steer")]


def test_each_thing_said_is_a_task_and_follows_the_one_before(prompt: "PromptBuilder") -> None:
    prompt.turn("turn_1", "Total revenue?").attach("a.csv").say("followup", "By region")

    conversation = read_conversation(prompt.build())
    second = read_task(conversation.now.asks[1], conversation, 2)

    assert isinstance(second, TableTask)
    assert (second.number, second.analysis.question) == (2, "By region")


def test_the_newest_result_of_an_earlier_task_is_the_last_one(prompt: "PromptBuilder") -> None:
    prompt.turn("turn_1", "Total?").attach("a.csv").ran(1, "analyse_a", 'RESULT {"file": "a.csv", "rows": 1}').answered(
        "1"
    )
    prompt.turn("turn_2", "And?").ran(1, "analyse_a", 'RESULT {"file": "a.csv", "rows": 2}')
    prompt.ran(2, "analyse_a_2", 'RESULT {"error": "no rows"}')

    conversation = read_conversation(prompt.build())

    found = [find_last_result(conversation, number) for number in (1, 2, 3)]
    assert [result.rows if result else 0 for result in found] == [1, 2, 2]


def test_a_known_figure_needs_no_program_but_a_chart_does(prompt: "PromptBuilder") -> None:
    result = {
        "file": "a.csv",
        "columns": ["units"],
        "numbers": ["units"],
        "totals": {"units": {"total": 5, "mean": 2.5}},
    }
    prompt.turn("turn_1", "Total?").attach("a.csv", "units\n5").ran(1, "analyse_a", f"RESULT {json.dumps(result)}")
    conversation = read_conversation(prompt.answered("5").turn("turn_2", "…").build())

    known = read_task(Ask("prompt", "What is the average?"), conversation, 1)
    drawn = read_task(Ask("prompt", "Draw a chart of the average"), conversation, 1)

    assert isinstance(known, KnownTask)
    assert known.text == "The average units is 2.50."
    assert isinstance(drawn, TableTask)


def test_a_step_that_runs_the_program_gets_it() -> None:
    assert read_program_step("run the program", "print(1)") == "print(1)"
    assert read_program_step("say goodbye", "print(1)") is None
    assert read_program_step("run the program", None) is None


@pytest.mark.parametrize(
    ("preview", "columns"),
    [
        ("\n\ufeffa,b , c\n1,2,3", ["a", "b", "c"]),
        ('"x, y";z\n', ["x, y", "z"]),
        ("one", ["one"]),
        ("", []),
    ],
)
def test_columns_are_read_from_the_first_line(preview: str, columns: list[str]) -> None:
    assert read_columns(preview) == columns


def test_a_table_is_known_by_name_or_type() -> None:
    assert is_table(Attachment("A.CSV", "", "", ""))
    assert is_table(Attachment("data", "text/csv", "", ""))
    assert not is_table(Attachment("a.png", "image/png", "", ""))


@given(st.text(alphabet="`python\n x", max_size=200))
def test_a_fence_without_end_is_text(text: str) -> None:
    program, rest = split_program(text)

    assert rest == text if program is None else program in text
