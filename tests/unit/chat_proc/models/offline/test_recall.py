"""Questions about the conversation are answered from what the prompt still shows."""

from typing import TYPE_CHECKING

import pytest

from chat_proc.models.offline.reading import read_conversation
from chat_proc.models.offline.recall import is_about_memory, is_note, recall, recall_note

if TYPE_CHECKING:
    from tests.unit.chat_proc.models.offline.conftest import PromptBuilder


@pytest.fixture
def history(prompt: "PromptBuilder") -> "PromptBuilder":
    prompt.turn("turn_1", "My name is Ada and I sell tea.").answered("Noted.")
    prompt.turn("turn_2", "Total revenue by region?").answered(
        "- **revenue**: total 1,234 (5 values)\nHighest total revenue by region: North with 900."
    )
    return prompt.turn("turn_3", "…")


@pytest.mark.parametrize(
    ("question", "part"),
    [
        ("What did I ask first?", "You first asked: “My name is Ada and I sell tea.”"),
        ("what was my first question", "You first asked: “My name is Ada"),
        ("What did I just ask?", "Before this you asked: “Total revenue by region?”"),
        ("What did I ask so far?", "1. My name is Ada and I sell tea.\n2. Total revenue by region?"),
        ("What is my name?", "“My name is Ada and I sell tea.”"),
        ("What was the total revenue?", "total 1,234"),
        ("Which region was highest?", "North with 900"),
        ("Do you remember what I sell?", "I sell tea"),
    ],
)
def test_earlier_turns_answer(history: "PromptBuilder", question: str, part: str) -> None:
    answer = recall(question, read_conversation(history.build()))

    assert part in (answer or "")


@pytest.mark.parametrize(
    "question", ["What was the average of units?", "Total revenue by month", "Hello", "Remember: tea"]
)
def test_what_was_not_said_is_not_recalled(history: "PromptBuilder", question: str) -> None:
    assert recall(question, read_conversation(history.build())) is None


def test_in_the_first_turn_there_is_nothing_to_recall(prompt: "PromptBuilder") -> None:
    conversation = read_conversation(prompt.turn("turn_1", "What did I ask first?").build())

    assert "first message" in (recall("What did I ask first?", conversation) or "")


def test_summaries_of_pruned_turns_are_searched_too(prompt: "PromptBuilder") -> None:
    prompt.block("[COMPACTED PRIOR CONVERSATION MEMORY]\npath=su:turn_0.x; of turn_0\nThe user's cat is called Minka.")

    conversation = read_conversation(prompt.turn("turn_9", "…").build())

    assert "Minka" in (recall("Do you remember my cat?", conversation) or "")


def test_notes_and_questions_about_memory_are_told_apart() -> None:
    assert is_note("Remember that my cat is called Minka.")
    assert not is_note("Do you remember my cat?")
    assert is_about_memory("What did you say about tea?")


@pytest.mark.parametrize("question", ["And which region was highest?", "What was the goal?", "Which facts were told?"])
def test_questions_summaries_and_tables_are_never_quoted(prompt: "PromptBuilder", question: str) -> None:
    prompt.turn("turn_1", question).answered("| region | goal |\n_Facts: highest region, goal told by a model._")
    prompt.block(f"[conv.working.summary ws:turn_1.conv.working.summary]\nGoal: {question}\nFacts: the goal")

    conversation = read_conversation(prompt.turn("turn_2", question).build())

    assert recall(question, conversation) is None


def test_what_introduces_the_model_is_no_memory(prompt: "PromptBuilder") -> None:
    prompt.turn("turn_1", "Hm").answered("I am Everturn's offline model: rules.\nI can total revenue by region.")

    conversation = read_conversation(prompt.turn("turn_2", "…").build())

    assert recall("What was the total revenue by region?", conversation) is None


def test_a_note_is_found_by_a_word_it_shares_with_the_question(prompt: "PromptBuilder") -> None:
    prompt.turn("turn_1", "Remember that North is run by Bob").answered("Noted.")

    conversation = read_conversation(prompt.turn("turn_2", "…").build())

    assert "run by Bob" in (recall_note("who looks after North?", conversation) or "")
    assert recall_note("who looks after South?", conversation) is None
