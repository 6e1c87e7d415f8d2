"""A message may hold several questions, or the steps of a plan; each becomes a task."""

from typing import TYPE_CHECKING

import pytest

from chat_proc.models.offline.questions import ProgramTask, TableTask, TalkTask
from chat_proc.models.offline.reading import Ask, read_conversation
from chat_proc.models.offline.tasks import find_plan_ask, read_tasks, split_questions

if TYPE_CHECKING:
    from tests.unit.chat_proc.models.offline.conftest import PromptBuilder


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("Total revenue by region. With a chart, please.", ["Total revenue by region. With a chart, please."]),
        ("Total revenue? And the average units?", ["Total revenue?", "And the average units?"]),
        ("Which region was best? What did I ask first?", ["Which region was best?", "What did I ask first?"]),
        ("Hello! Here is our data. Revenue by region?", ["Hello!", "Here is our data. Revenue by region?"]),
        ("What is 2+2? Tell me a joke?", ["What is 2+2?", "Tell me a joke?"]),
        ("I run a shop. What is 2+2?", ["What is 2+2?"]),
        ("1. Total revenue?\n2. Average units?", ["Total revenue?", "Average units?"]),
        ("Tell me a joke. Sing a song.", ["Tell me a joke. Sing a song."]),
        ("Total revenue, e.g. by region", ["Total revenue, e.g. by region"]),
    ],
)
def test_questions_side_by_side_are_taken_apart(prompt: "PromptBuilder", text: str, pieces: list[str]) -> None:
    prompt.turn("turn_1", text).attach("a.csv", "region,revenue,units")

    assert split_questions(Ask("prompt", text), read_conversation(prompt.build())) == pieces


def test_named_steps_are_tasks_with_the_numbers_of_the_plan(prompt: "PromptBuilder") -> None:
    prompt.turn("turn_1", "Make a plan: greet me, revenue by region, run it\n\n```python\nprint(1)\n```")
    prompt.attach("a.csv", "region,revenue")

    tasks = read_tasks(read_conversation(prompt.build()))

    assert [(type(task), task.number, task.step) for task in tasks] == [
        (TalkTask, 1, 1),
        (TableTask, 2, 2),
        (ProgramTask, 3, 3),
    ]


def test_a_plan_may_be_wanted_by_a_followup(prompt: "PromptBuilder") -> None:
    prompt.turn("turn_1", "hi").say("followup", "Make a plan: greet me, say goodbye")

    conversation = read_conversation(prompt.build())

    assert find_plan_ask(conversation) == conversation.now.asks[1]
    assert [(task.number, task.step) for task in read_tasks(conversation)] == [(1, 0), (2, 1), (3, 2)]


def test_a_flood_of_questions_is_cut(prompt: "PromptBuilder") -> None:
    prompt.turn("turn_1", "What is 1+1? " * 50)

    assert len(read_tasks(read_conversation(prompt.build()))) == 12
