"""Cuts a long text into parts that a snippet can hold, at paragraphs, lines, sentences or words where there are any."""

from collections.abc import Iterator

from everturn.model.memory.snippets import MAX_SNIPPET_CHARS

_BORDERS = ("\n\n", "\n", ". ", " ")
MIN_SHARE = 0.4
"""A part is not cut before this share of its limit, so that small paragraphs don't become many parts."""


def cut_chunks(text: str, *, limit: int, max_chars: int = MAX_SNIPPET_CHARS) -> list[str]:
    """At most `limit` parts of at most `max_chars` characters, in order, without blanks around them."""
    found: list[str] = []
    for chunk in _walk(text, max_chars):
        if len(found) >= limit:
            break
        found.append(chunk)
    return found


def _walk(text: str, max_chars: int) -> Iterator[str]:
    start = 0
    while start < len(text):
        end = _find_end(text, start, max_chars)
        chunk = text[start:end].strip()
        if chunk:
            yield chunk
        start = end


def _find_end(text: str, start: int, max_chars: int) -> int:
    if len(text) - start <= max_chars:
        return len(text)
    earliest = start + int(max_chars * MIN_SHARE)
    for border in _BORDERS:
        place = text.rfind(border, earliest, start + max_chars)
        if place >= 0:
            return place + len(border)
    return start + max_chars
