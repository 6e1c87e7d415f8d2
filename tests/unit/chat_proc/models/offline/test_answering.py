"""The first rule that fits answers; when none fits, that is told to the caller."""

from typing import TYPE_CHECKING

import pytest

from chat_proc.models.offline.answering import is_understood, try_answer
from chat_proc.models.offline.reading import read_conversation

if TYPE_CHECKING:
    from tests.unit.chat_proc.models.offline.conftest import PromptBuilder


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("Hi, what is 2+2?", "2 + 2 = 4"),
        ("What time is it?", "00:35 (Europe/Berlin)"),
        ("hello", "Hello!"),
        ("What did I ask first?", "first message"),
        ("Remember that I like tea.", "Noted"),
        ("Do you remember my cat?", "I find nothing about that"),
        ("who are you?", "offline model"),
    ],
)
def test_each_kind_of_talk_has_its_answer(prompt: "PromptBuilder", text: str, part: str) -> None:
    conversation = read_conversation(prompt.turn("turn_1", text).build())

    assert part in (try_answer(text, conversation) or "")


def test_what_no_rule_fits_is_not_understood(prompt: "PromptBuilder") -> None:
    conversation = read_conversation(prompt.turn("turn_1", "…").build())

    assert not is_understood("Tell me a joke", conversation)
