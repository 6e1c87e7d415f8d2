"""Separates what a model thought from its reply if the server leaves both in one text: a reply can begin with
`<think>` or `<thinking>` and what the model thought, up to the closing tag. docs/models.md says which servers send
this."""

import re
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Literal

from chat_proc.models.json_values import JsonDepth
from chat_proc.models.markdown_code import split_code
from everturn.models.port import ModelPiece, ReasoningDelta, TextDelta

_BEGINS = ("<think>", "<thinking>")
_ENDS = ("</think>", "</thinking>")
_BEGIN = "<think(?:ing)?>"
_END = "(?<!`)</think(?:ing)?>"
"""A model that writes about the tag puts it into backticks."""
_BEGIN_TAG = re.compile(_BEGIN, re.IGNORECASE)
_END_TAG = re.compile(_END, re.IGNORECASE)
_TAG = re.compile("<(?:(?P<opens>think(?:ing)?)|/think(?:ing)?)>", re.IGNORECASE)
_MAX_HELD_BLANKS = 256
"""This many blanks before a tag are dropped; a model may repeat them until its reply is cut off."""


def drop_reasoning(text: str) -> str:
    """The text of a whole reply after what the model thought. The opening tag may be missing, since some templates
    write it. Then a closing tag at the very end is a stray one, and one inside a string or code is quoted."""
    begun = text.lstrip()
    is_opened = _BEGIN_TAG.match(begun) is not None
    end = _END_TAG.search(begun) if is_opened else _find_unquoted_end(begun)
    if end is None:
        return text
    rest = begun[end.end() :].lstrip()
    return rest if is_opened or rest else text


def _find_unquoted_end(text: str) -> re.Match[str] | None:
    """The first tag that ends reasoning, if it is outside of code, strings and objects, and no tag opens it."""
    tag, position = _TAG.search(text), 0
    for span in split_code(text) if tag else ():
        position += len(span.text)
        while tag is not None and tag.start() < position:
            if span.kind == "text":
                return None if tag["opens"] or _ends_in_quote(text[: tag.start()]) else tag
            tag = _TAG.search(text, position)
    return None


def _ends_in_quote(text: str) -> bool:
    """Whether what follows this text would be inside a string or an object."""
    if text.endswith(('"', "'", "(")):
        return True
    depth = JsonDepth()
    if text.lstrip().startswith("{"):
        depth.advance(text)
    return depth.depth > 0


class ThinkTagReader:
    """Reads the text of one reply, in order. Only the beginning of a reply can be thinking: a later tag is text."""

    def __init__(self) -> None:
        self._held = ""
        """Text that may be a part of a tag, or blanks around what the model thought."""
        self._inside: Literal["beginning", "thinking", "after", "text"] = "beginning"
        self._has_thought = False

    def feed(self, text: str) -> list[ModelPiece]:
        """The pieces that the next text adds."""
        self._held += text
        pieces: list[ModelPiece] = []
        if self._inside == "beginning":
            self._begin()
        if self._inside == "thinking":
            pieces += self._think()
        if self._inside == "after":
            self._held = self._held.lstrip()
            self._inside = "text" if self._held else "after"
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
        if len(self._held) - len(begun) > _MAX_HELD_BLANKS:
            self._inside = "text"
        elif tag := _BEGIN_TAG.match(begun):
            self._held, self._inside = begun[tag.end() :], "thinking"
        elif not _begins_tag(begun, _BEGINS):
            self._inside = "text"

    def _think(self) -> list[ModelPiece]:
        """What the model thought, without blanks around it and a possible part of the closing tag."""
        if not self._has_thought:
            self._held = self._held.lstrip()
        end = _END_TAG.search(self._held)
        settled = end.start() if end else _count_settled(self._held)
        shown = self._held[: max(len(self._held[:settled].rstrip()), settled - _MAX_HELD_BLANKS)]
        self._held = self._held[end.end() if end else len(shown) :]
        self._inside = "after" if end else "thinking"
        self._has_thought = self._has_thought or bool(shown)
        return [ReasoningDelta(shown)] if shown else []


def _begins_tag(text: str, tags: tuple[str, ...]) -> bool:
    return any(tag.startswith(text.lower()) for tag in tags)


def _count_settled(thought: str) -> int:
    """How many characters can't become part of the closing tag, or be the backtick before one."""
    last = thought.rfind("<")
    settled = last if last >= 0 and _begins_tag(thought[last:], _ENDS) else len(thought)
    return settled - thought.endswith("`", 0, settled)


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
