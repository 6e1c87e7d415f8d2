"""Separates what a model thought from its reply if the server leaves both in one text: a reply can begin with
`<think>` or `<thinking>` and what the model thought, up to the closing tag. docs/models.md says which servers send
this."""

import re
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Literal

from chat_proc.models.json_values import JsonDepth
from chat_proc.models.markdown_code import MAX_INLINE_CHARS, CodeSplitter, Span, split_code
from everturn.models.port import ModelPiece, ReasoningDelta, TextDelta

_BEGINS = ("<think>", "<thinking>")
_ENDS = ("</think>", "</thinking>")
_BEGIN_TAG = re.compile("<think(?:ing)?>", re.IGNORECASE)
_END_TAG = re.compile("</think(?:ing)?>", re.IGNORECASE)
_TAG = re.compile("<(?:(?P<opens>think(?:ing)?)|/think(?:ing)?)>", re.IGNORECASE)
_MAX_WAITING_CHARS = MAX_INLINE_CHARS
"""So much of a reply waits behind a closing tag in code."""
_MAX_WAITING_IN_FENCE_CHARS = 1_024
"""The same while that code is a fence without its end: it may have none."""
_MAX_HELD_BLANKS = 256
"""This many blanks before a tag are dropped; a model may repeat them until its reply is cut off."""


def drop_reasoning(text: str) -> str:
    """The text of a whole reply after what the model thought. The opening tag may be missing, since some templates
    write it. Then a closing tag at the very end is a stray one, and one inside a string or code is quoted."""
    begun = text.lstrip()
    if opening := _BEGIN_TAG.match(begun):
        thought = _Thought()
        thought.read(begun[opening.end() :], is_last=True)
        return text if thought.behind is None else thought.behind.lstrip()
    end = _find_unquoted_end(begun)
    rest = begun[end.end() :].lstrip() if end else ""
    return rest or text


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


class _Thought:
    """What a model thought, read up to the tag that ends it: the first outside of code, or the first in code if none
    outside follows within _MAX_WAITING_CHARS; in a fence, that must end within _MAX_WAITING_IN_FENCE_CHARS."""

    def __init__(self) -> None:
        self.behind: str | None = None
        """The text behind the end, once that is known."""
        self._code = CodeSplitter()
        self._tag_beginning = ""
        self._waiting: list[str] = []
        """The text from the first tag in code on."""
        self._waiting_chars = 0
        self._max_waiting_chars = _MAX_WAITING_IN_FENCE_CHARS

    def read(self, text: str, *, is_last: bool = False) -> str:
        """The part of what the model thought that the next text makes certain."""
        text = self._tag_beginning + text
        settled = len(text) if is_last else _count_settled(text)
        self._tag_beginning = text[settled:]
        spans = deque(self._code.feed(text[:settled]))
        if is_last:
            spans += self._code.finish()
        thought: list[str] = []
        while spans and self.behind is None:
            thought.append(self._read_span(spans.popleft()))
        if is_last and self.behind is None and self._waiting:
            self._end_in_code()
        if self.behind is not None:
            spans += self._code.finish()
            self.behind += "".join(span.text for span in spans) + self._tag_beginning
        return "".join(thought)

    def _read_span(self, span: Span) -> str:
        tag = _END_TAG.search(span.text)
        before = span.text[: tag.start()] if tag else span.text
        is_late = bool(self._waiting) and self._waiting_chars + len(before) > _MAX_WAITING_CHARS
        if tag is not None and span.kind == "text" and not is_late:
            self.behind = span.text[tag.end() :]
            return "".join((*self._waiting, before))
        if tag is None and not self._waiting:
            return before
        shown = "" if self._waiting else before
        self._waiting.append(span.text[len(shown) :])
        self._waiting_chars += len(span.text) - len(shown)
        if span.kind != "fence":
            self._max_waiting_chars = _MAX_WAITING_CHARS
        if self._waiting_chars > self._max_waiting_chars:
            self._end_in_code()
        return shown

    def _end_in_code(self) -> None:
        waiting = "".join(self._waiting)
        self.behind = waiting[waiting.index(">") + 1 :]


class ThinkTagReader:
    """Reads the text of one reply, in order. Only the beginning of a reply can be thinking: a later tag is text."""

    def __init__(self) -> None:
        self._held = ""
        """Text that may be a part of the opening tag, or blanks around what the model thought."""
        self._inside: Literal["beginning", "thinking", "after", "text"] = "beginning"
        self._thought = _Thought()
        self._has_thought = False

    @property
    def has_begun(self) -> bool:
        """Whether more than blanks and a part of a tag was read."""
        return self._inside != "beginning"

    def feed(self, text: str) -> list[ModelPiece]:
        """The pieces that the next text adds."""
        return self._read(text, is_last=False)

    def finish(self) -> list[ModelPiece]:
        """The pieces that are still held back, if any."""
        return self._read("", is_last=True)

    def _read(self, text: str, *, is_last: bool) -> list[ModelPiece]:
        pieces: list[ModelPiece] = []
        if self._inside == "beginning":
            text = self._begin(self._held + text, is_last=is_last)
        if self._inside == "thinking":
            thought, text = self._think(text, is_last=is_last)
            pieces += [ReasoningDelta(thought)] if thought else []
        if self._inside == "after" and (text := text.lstrip()):
            self._inside = "text"
        return [*pieces, TextDelta(text)] if self._inside == "text" and text else pieces

    def _begin(self, text: str, *, is_last: bool) -> str:
        """Find out whether the reply begins with a tag; return what to read next."""
        self._held = ""
        begun = text.lstrip()
        is_late = len(text) - len(begun) > _MAX_HELD_BLANKS
        if (tag := _BEGIN_TAG.match(begun)) and not is_late:
            self._inside = "thinking"
            return begun[tag.end() :]
        if (text and is_last) or is_late or not _begins_tag(begun, _BEGINS):
            self._inside = "text"
            return text
        self._held = text
        return ""

    def _think(self, text: str, *, is_last: bool) -> tuple[str, str]:
        """What the model thought, without blanks around it, and the text behind it."""
        thought = self._held + self._thought.read(text, is_last=is_last)
        if not self._has_thought:
            thought = thought.lstrip()
        is_over = self._thought.behind is not None
        keeps_blanks = is_last and not is_over
        shown = thought if keeps_blanks else thought[: max(len(thought.rstrip()), len(thought) - _MAX_HELD_BLANKS)]
        self._held = "" if is_over else thought[len(shown) :]
        self._inside = "after" if is_over else "thinking"
        self._has_thought = self._has_thought or bool(shown)
        return shown, self._thought.behind or ""


def _begins_tag(text: str, tags: tuple[str, ...]) -> bool:
    return any(tag.startswith(text.lower()) for tag in tags)


def _count_settled(thought: str) -> int:
    """How many characters can't become part of the closing tag."""
    last = thought.rfind("<")
    return last if last >= 0 and _begins_tag(thought[last:], _ENDS) else len(thought)


async def split_thinking(pieces: AsyncGenerator[ModelPiece, None]) -> AsyncGenerator[ModelPiece, None]:
    """The pieces of one reply, with what the model thought as ReasoningDelta. If it fails, what was held back of it
    comes before the failure, unless nothing has begun. Closing it closes `pieces`."""
    reader = ThinkTagReader()
    async with aclosing(pieces):
        try:
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
        except Exception:
            for each in reader.finish() if reader.has_begun else ():
                yield each
            raise
