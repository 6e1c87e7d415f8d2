"""Courtesies get one back; a greeting in front of a question does not hide the question."""

import pytest

from chat_proc.models.phrases.courtesy import asks_who, drop_greeting, try_reply


@pytest.mark.parametrize(
    ("text", "reply"),
    [
        ("Hi", "Hello!"),
        ("hello there!", "Hello!"),
        ("greet me", "Hello!"),
        ("say hello to Ada", "Hello!"),
        ("say goodbye", "Goodbye!"),
        ("Thanks a lot!", "You are welcome."),
        ("ok, thank you", "You are welcome."),
        ("great job", "Good. Ask me more whenever you like."),
        ("How are you?", "All rules are in place, thank you."),
    ],
)
def test_a_courtesy_gets_one_back(text: str, reply: str) -> None:
    assert try_reply(text) == reply


@pytest.mark.parametrize(
    "text", ["", "hi" * 100, "highest revenue", "hello world program", "thanks, and now the revenue"]
)
def test_more_than_a_courtesy_is_left_alone(text: str) -> None:
    assert try_reply(text) is None


def test_the_question_behind_a_greeting_is_found() -> None:
    assert drop_greeting("Hi there, what is 2+2?") == "what is 2+2?"
    assert drop_greeting("Highest revenue") == "Highest revenue"


def test_who_speaks_may_be_asked_in_several_ways() -> None:
    assert all(map(asks_who, ["What can you do?", "who are you", "Are you ChatGPT?", "help!"]))
    assert not asks_who("Who has the highest salary?")
