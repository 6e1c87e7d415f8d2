"""How long a request may be, and how much room a summary of older blocks gets in it. All numbers are tokens."""

from dataclasses import dataclass

SOFT_PERCENT, HARD_PERCENT, TARGET_PERCENT = 75, 95, 60
TEXT_PERCENT, KEPT_PERCENT = 4, 12
"""Shares of the whole for a summary's text, and for what it keeps word for word. 3,200 tokens of text are room for all
sections; the reference system gave eight sections 640 tokens and lost what did not fit."""
LISTED_TURNS = 40
"""Turns that one summary names one by one; the earlier ones are found through the summary before it."""
MIN_LISTED_TURNS = 4
TOKENS_PER_LISTED_TURN = 1_000


@dataclass(frozen=True, slots=True)
class ContextLimits:
    """Limits of one request: system text, timeline, sources and ANNOUNCE together."""

    max_tokens: int = 80_000

    @property
    def soft(self) -> int:
        """From here on a summary is made beside the turn."""
        return self.max_tokens * SOFT_PERCENT // 100

    @property
    def hard(self) -> int:
        """No request is sent that is longer."""
        return self.max_tokens * HARD_PERCENT // 100

    @property
    def target(self) -> int:
        """What a compaction aims at."""
        return self.max_tokens * TARGET_PERCENT // 100

    @property
    def text_tokens(self) -> int:
        """Of a summary's text, and of the model's reply that writes it."""
        return max(1, self.max_tokens * TEXT_PERCENT // 100)

    @property
    def kept_tokens(self) -> int:
        """Of what a summary keeps."""
        return max(1, self.max_tokens * KEPT_PERCENT // 100)

    @property
    def listed_turns(self) -> int:
        """Turns that one summary names one by one."""
        return min(LISTED_TURNS, max(MIN_LISTED_TURNS, self.max_tokens // TOKENS_PER_LISTED_TURN))


def build_context_limits(max_tokens: int, *, context_tokens: int, max_output_tokens: int) -> ContextLimits:
    """The set limit, or what the model's context leaves beside its reply where that is less; at least half of it."""
    room = max(context_tokens - max_output_tokens, context_tokens // 2)
    return ContextLimits(min(max_tokens, room))
