"""A commit is blocks and a cursor; all else is there only when it changes."""

from everturn.core.ids import TurnId
from everturn.events.cursor import EventCursor
from everturn.turns.model import Commit, Effect, EffectState


def test_a_commit_needs_only_blocks_and_a_cursor() -> None:
    commit = Commit(TurnId("turn_1"), (), EventCursor(1, 1))

    assert (commit.effects, commit.usage, commit.artifacts, commit.signals, commit.close) == ((), (), (), (), None)


def test_the_words_are_those_of_the_ledger() -> None:
    assert [effect.value for effect in Effect] == ["pure", "idempotent", "irreversible"]
    assert [state.value for state in EffectState] == ["intended", "committed", "failed", "ambiguous"]
