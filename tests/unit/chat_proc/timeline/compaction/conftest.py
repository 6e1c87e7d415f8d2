"""A conversation played from words, as compaction sees it."""

from collections.abc import Callable, Sequence

import pytest

from chat_proc.timeline.compaction.cut import ContextLimits, Snapshot
from everturn.models.tokens import CharsPerToken
from everturn_testing.long_talks import play_talk
from everturn_testing.timeline import NOW, TimelineBuilder

Look = Callable[..., Snapshot]


@pytest.fixture
def look() -> Look:
    """`look(steps or timeline, max_tokens=8000)`: four characters a token, 400 tokens beside the timeline."""

    def build(what: Sequence[str] | TimelineBuilder, max_tokens: int = 8_000) -> Snapshot:
        talk = what if isinstance(what, TimelineBuilder) else play_talk(what)
        limits = ContextLimits(max_tokens)
        return Snapshot(tuple(talk.blocks), talk.turn_id, talk.round, NOW, 400, limits, CharsPerToken(4.0))

    return build
