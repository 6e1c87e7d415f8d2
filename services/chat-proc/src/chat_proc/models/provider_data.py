"""What a provider sends, made safe at the adapter's edge: the SDKs check nothing, so a value may have any JSON shape.

Everything behind this module may rely on counts that fit the ledger and on texts that can be encoded and stored.
"""

import json
from collections.abc import AsyncGenerator
from contextlib import aclosing

from everturn.ports.language_model import ModelPiece, ReasoningDelta, ReplyFinished, TextDelta

MAX_COUNT = 1_000_000_000
"""Tokens of one call; a larger count is a defect of the provider and is not booked."""
MAX_WORD_CHARS = 100
MAX_MESSAGE_CHARS = 500


def try_read_count(value: object) -> int | None:
    """A number of tokens; None where the value cannot be one."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return value if 0 <= value <= MAX_COUNT else None


def read_text(value: object, *, max_chars: int = MAX_MESSAGE_CHARS) -> str:
    """Any JSON value as a text that can be encoded and stored; empty for null."""
    if value is None:
        return ""
    if not isinstance(value, str):
        try:
            value = json.dumps(value, ensure_ascii=True, default=str)
        except (TypeError, ValueError, RecursionError):
            value = type(value).__name__
    return replace_surrogates(value[:max_chars])


def try_read_word(value: object) -> str | None:
    """A short name, such as an error's type or a model's name; None where the value is none."""
    if isinstance(value, bool) or not isinstance(value, str | int):
        return None
    word = " ".join(read_text(str(value), max_chars=MAX_WORD_CHARS).split())
    return word or None


def replace_surrogates(text: str) -> str:
    """The text with pairs of surrogates joined, and U+FFFD for each half that stands alone."""
    if text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


class SurrogateJoiner:
    """Joins the halves of a character that a provider split over two pieces of text."""

    def __init__(self) -> None:
        self._half = ""

    def feed(self, text: str) -> str:
        """What can be handed on; a first half at the end waits for its second one."""
        text = self._half + text
        self._half = ""
        if text and "\ud800" <= text[-1] <= "\udbff":
            text, self._half = text[:-1], text[-1]
        return replace_surrogates(text)

    def finish(self) -> str:
        """What still waited."""
        half, self._half = self._half, ""
        return replace_surrogates(half)


async def normalize_pieces(pieces: AsyncGenerator[ModelPiece, None]) -> AsyncGenerator[ModelPiece, None]:
    """The pieces of one reply with texts that can be encoded and stored. Closing it closes `pieces`."""
    text, reasoning = SurrogateJoiner(), SurrogateJoiner()
    async with aclosing(pieces):
        async for piece in pieces:
            match piece:
                case TextDelta():
                    if joined := text.feed(piece.text):
                        yield TextDelta(joined)
                case ReasoningDelta():
                    if joined := reasoning.feed(piece.text):
                        yield ReasoningDelta(joined)
                case ReplyFinished():
                    if left := reasoning.finish():
                        yield ReasoningDelta(left)
                    if left := text.finish():
                        yield TextDelta(left)
                    yield piece
                case _:
                    yield piece
