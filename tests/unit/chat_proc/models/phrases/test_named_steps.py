"""Wishes for a plan are heard, and the steps that the message names are found."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chat_proc.models.phrases.named_steps import read_steps, wants_plan


@pytest.mark.parametrize(
    "text",
    [
        "Make a plan for it",
        "first plan the steps",
        "do it step by step",
        "plan: buy milk",
        "I want a short plan",
        "First greet me, then say goodbye",
        "Do these steps: greet me, say goodbye",
    ],
)
def test_a_wish_for_a_plan_is_heard(text: str) -> None:
    assert wants_plan(text)


@pytest.mark.parametrize("text", ["the planet", "total by plan_type", "What did I ask first?", "the first then"])
def test_other_words_are_no_wish_for_a_plan(text: str) -> None:
    assert not wants_plan(text)


@pytest.mark.parametrize(
    ("text", "steps"),
    [
        ("Plan:\n1. Read it\n2) Sum it\n- Tell me", ("Read it", "Sum it", "Tell me")),
        ("Make a plan: 1. greet me 2. compute 2+2, 3) say bye", ("greet me", "compute 2+2", "say bye")),
        (
            "Make a plan with three steps: greet me, compute 2+2, say goodbye",
            ("greet me", "compute 2+2", "say goodbye"),
        ),
        ("Plan: greet me and then compute 1,000 + 1.", ("greet me", "compute 1,000 + 1")),
        ("Make a plan: greet me; sum of 1, 2 and 3", ("greet me", "sum of 1, 2 and 3")),
        ("First greet me, then run it, finally say goodbye.", ("greet me", "run it", "say goodbye")),
        (
            "First tell the date, and then recall what I asked first",
            ("tell the date", "recall what I asked first"),
        ),
        ("1. Only one", ()),
        ("Make a plan for the sales file", ()),
    ],
)
def test_named_steps_become_the_plan(text: str, steps: tuple[str, ...]) -> None:
    assert read_steps(text) == steps


@given(st.text(alphabet="plan:,;12.) -\nfirst then and", max_size=300))
def test_steps_are_few_and_never_empty(text: str) -> None:
    steps = read_steps(text)

    assert len(steps) <= 10
    assert all(step.strip() and len(step) <= 200 for step in steps)
