"""The rule that all providers share: at most four cache points a request."""

from collections.abc import Sequence
from dataclasses import replace

from everturn.model.llm.prompts import Part, PromptMessage, TextPart

MAX_CACHE_POINTS = 4
"""The limit of both providers."""


def keep_last_cache_points(messages: Sequence[PromptMessage]) -> tuple[PromptMessage, ...]:
    """The messages with the first of their cache points and the last ones, at most four.

    The first (after the system text) is what a changed conversation can still hit; the last ones grow with the turn.
    """
    marked = _places(messages)
    kept = set(marked if len(marked) <= MAX_CACHE_POINTS else [marked[0], *marked[1 - MAX_CACHE_POINTS :]])
    return tuple(
        replace(message, parts=tuple(_keep(part, (at, index) in kept) for index, part in enumerate(message.parts)))
        for at, message in enumerate(messages)
    )


def _places(messages: Sequence[PromptMessage]) -> list[tuple[int, int]]:
    return [
        (at, index)
        for at, message in enumerate(messages)
        for index, part in enumerate(message.parts)
        if isinstance(part, TextPart) and part.cache_point and part.text
    ]


def _keep(part: Part, kept: bool) -> Part:
    return replace(part, cache_point=kept) if isinstance(part, TextPart) else part
