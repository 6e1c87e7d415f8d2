"""Feedback is a value; two judgements that say the same are equal."""

from everturn.core.ids import TurnId
from everturn.feedback.model import Feedback, Judgements, Reaction
from everturn_testing.core import BEGINNING


def test_equal_feedback_totals_are_equal() -> None:
    one = Feedback(TurnId("turn_1"), "user", Reaction.OK, "", BEGINNING)

    assert one == Feedback(TurnId("turn_1"), "user", Reaction.OK, "", BEGINNING)
    assert one != Feedback(TurnId("turn_1"), "machine", Reaction.OK, "", BEGINNING)


def test_the_reactions_are_those_of_the_api() -> None:
    assert [reaction.value for reaction in Reaction] == ["ok", "not_ok", "neutral"]


def test_satisfaction_is_what_was_liked_of_what_was_judged() -> None:
    assert Judgements(ok=1, not_ok=1, neutral=2, unrated=9).satisfaction == 0.25
    assert Judgements(unrated=9).satisfaction is None
