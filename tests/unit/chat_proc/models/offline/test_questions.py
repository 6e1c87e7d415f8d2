"""What the user wants is understood by rules."""

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chat_proc.models.offline.questions import (
    ProgramTask,
    TableTask,
    TalkTask,
    is_table,
    read_columns,
    read_steps,
    read_task,
    read_tasks,
    split_program,
    wants_plan,
)
from chat_proc.models.offline.reading import Attachment, read_conversation

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
    assert task.before == "Total revenue?"


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
    assert (second.number, second.before) == (2, "Total revenue?")


@pytest.mark.parametrize(
    "text",
    ["Make a plan for it", "first plan the steps", "do it step by step", "plan: buy milk", "I want a short plan"],
)
def test_a_wish_for_a_plan_is_heard(text: str) -> None:
    assert wants_plan(text)


@pytest.mark.parametrize("text", ["the planet", "total by plan_type", "```python\nmake_plan = 1 # make a plan\n```"])
def test_other_words_are_no_wish_for_a_plan(text: str) -> None:
    assert not wants_plan(text)


def test_listed_steps_are_read_when_there_are_two() -> None:
    assert read_steps("Plan:\n1. Read it\n2) Sum it\n- Tell me") == ("Read it", "Sum it", "Tell me")
    assert read_steps("1. Only one") == ()


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
