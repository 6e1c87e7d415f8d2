"""The date and the time are those of the user, from the clock of ANNOUNCE."""

import pytest

from chat_proc.models.phrases.clock import try_tell_time

NOW = "2026-11-21T23:35:00Z"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("What time is it?", "It is Sunday, 22 November 2026, 00:35 (Europe/Berlin)."),
        ("what's the date today?", "It is Sunday, 22 November 2026 (Europe/Berlin)."),
        ("Which day is it?", "It is Sunday, 22 November 2026 (Europe/Berlin)."),
        ("what day is tomorrow?", "Tomorrow is Monday, 23 November 2026 (Europe/Berlin)."),
        ("what day was yesterday", "Yesterday was Saturday, 21 November 2026 (Europe/Berlin)."),
        ("tell me the date", "It is Sunday, 22 November 2026 (Europe/Berlin)."),
    ],
)
def test_the_clock_is_read_in_the_users_zone(text: str, told: str) -> None:
    assert try_tell_time(text, NOW, "Europe/Berlin") == told


@pytest.mark.parametrize("zone", ["", "Nowhere/Atlantis", "../etc/passwd"])
def test_an_unknown_zone_is_told_as_utc(zone: str) -> None:
    assert try_tell_time("what time is it", NOW, zone) == "It is Saturday, 21 November 2026, 23:35 (UTC)."


def test_without_a_clock_the_answer_says_so() -> None:
    assert try_tell_time("what time is it", "", "UTC") == "I can't see a clock here."


@pytest.mark.parametrize("text", ["revenue per day", "which month was best?", "by date"])
def test_other_questions_about_days_are_left_alone(text: str) -> None:
    assert try_tell_time(text, NOW, "UTC") is None
