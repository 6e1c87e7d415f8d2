"""A conversation played from words, as compaction sees it."""

from collections.abc import Callable, Sequence

import pytest

from chat_proc.timeline.compaction.cut import ContextLimits, Snapshot
from everturn.models.tokens import CharsPerToken
from everturn_testing.long_conversations import play_conversation
from everturn_testing.timeline import NOW, TimelineBuilder

Look = Callable[..., Snapshot]


@pytest.fixture
def look() -> Look:
    """`look(steps or timeline, max_tokens=8000)`: four characters a token, 400 tokens beside the timeline."""

    def build(what: Sequence[str] | TimelineBuilder, max_tokens: int = 8_000) -> Snapshot:
        timeline = what if isinstance(what, TimelineBuilder) else play_conversation(what)
        limits = ContextLimits(max_tokens)
        return Snapshot(tuple(timeline.blocks), timeline.turn_id, timeline.round, NOW, 400, limits, CharsPerToken(4.0))

    return build
