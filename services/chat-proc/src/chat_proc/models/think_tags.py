"""Separates what a model thought from its reply if the server leaves both in one text: a reply can begin with
`<think>` and what the model thought, up to `</think>`. docs/models.md says which servers send this."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Literal

from everturn.models.port import ModelPiece, ReasoningDelta, TextDelta

_BEGIN = "<think>"
_END = "</think>"


class ThinkTagReader:
    """Reads the text of one reply, in order. Only the beginning of a reply can be thinking: a later tag is text."""

    def __init__(self) -> None:
        self._held = ""
        """Text that may be a part of a tag, or blanks around what the model thought."""
        self._inside: Literal["beginning", "thinking", "after", "text"] = "beginning"

    def feed(self, text: str) -> list[ModelPiece]:
        """The pieces that the next text adds."""
        self._held += text
        pieces: list[ModelPiece] = []
        if self._inside == "beginning":
            self._begin()
        if self._inside == "thinking":
            pieces += self._think()
        if self._inside == "after" and (rest := self._held.lstrip()):
            self._held, self._inside = rest, "text"
        if self._inside == "text":
            pieces += self.finish()
        return pieces

    def finish(self) -> list[ModelPiece]:
        """The piece that is still held back, if any."""
        held, self._held = self._held, ""
        if not held or self._inside == "after":
            return []
        return [ReasoningDelta(held) if self._inside == "thinking" else TextDelta(held)]

    def _begin(self) -> None:
        """Find out whether the reply begins with a tag."""
        begun = self._held.lstrip()
        if begun.startswith(_BEGIN):
            self._held, self._inside = begun.removeprefix(_BEGIN).lstrip(), "thinking"
        elif not _BEGIN.startswith(begun):
            self._inside = "text"

    def _think(self) -> list[ModelPiece]:
        """What the model thought, without blanks and a possible part of the closing tag at the end."""
        thought, found, rest = self._held.partition(_END)
        part = 0 if found else next(size for size in range(len(_END) - 1, -1, -1) if thought.endswith(_END[:size]))
        shown = thought[: len(thought) - part].rstrip()
        self._held = rest if found else thought[len(shown) :]
        self._inside = "after" if found else "thinking"
        return [ReasoningDelta(shown)] if shown else []


async def split_thinking(pieces: AsyncGenerator[ModelPiece, None]) -> AsyncGenerator[ModelPiece, None]:
    """The pieces of one reply, with what the model thought as ReasoningDelta. Closing it closes `pieces`."""
    reader = ThinkTagReader()
    async with aclosing(pieces):
        async for piece in pieces:
            match piece:
                case TextDelta():
                    for each in reader.feed(piece.text):
                        yield each
                case ReasoningDelta():
                    yield piece
                case _:
                    for each in reader.finish():
                        yield each
                    yield piece
