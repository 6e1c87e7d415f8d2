"""Answers that may be some seconds old, kept for as long as that and for so many questions."""

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

Question = TypeVar("Question", bound=Hashable)
Answer = TypeVar("Answer")


class FreshCache(Generic[Question, Answer]):
    """Owns its answers; only `get` changes them. An answer's age counts from when it was asked for."""

    def __init__(
        self,
        load: Callable[[Question], Awaitable[Answer]],
        *,
        monotonic: Callable[[], float],
        max_age_s: float,
        max_entries: int = 10_000,
    ) -> None:
        self._load = load
        self._monotonic = monotonic
        self._max_age_s = max_age_s
        self._max_entries = max_entries
        self._kept: OrderedDict[Question, tuple[float, Answer]] = OrderedDict()

    async def get(self, question: Question) -> Answer:
        """The answer; errors of the load go to who asks, and nothing is kept of them."""
        kept = self._kept.get(question)
        now = self._monotonic()
        if kept is not None and kept[0] > now:
            return kept[1]
        answer = await self._load(question)
        self._kept[question] = (now + self._max_age_s, answer)
        self._kept.move_to_end(question)
        while len(self._kept) > self._max_entries:
            self._kept.popitem(last=False)
        return answer
