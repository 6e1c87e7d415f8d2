"""Writes rows of the source pool as a JSON array whose texts share one budget of characters. Pure."""

import json
from collections.abc import Sequence
from typing import Any

from everturn.model.llm.sources import Source

MAX_URL_CHARS = 500
_MIN_TEXT_CHARS = 80
"""Less of a text says nothing."""


def render_rows(rows: Sequence[tuple[Source, str]], max_chars: int) -> tuple[str, bool]:
    """The array, and whether all texts are in it whole. It is valid JSON of at most `max_chars` characters.

    Each row comes with its whole text. A cut text has `text_shown`; rows without room are left out from the end.
    """
    widest = [_row(source, "", f"[0-{len(text)}]/{len(text)}") for source, text in rows]
    kept = _count_fitting(widest, max_chars)
    left = max_chars - len(_dump(widest[:kept]))
    shown: list[dict[str, Any]] = []
    whole = kept == len(rows)
    for texts_left, (source, text) in zip(range(kept, 0, -1), rows[:kept], strict=True):
        part = _fitting(text, left // texts_left)
        left -= len(_quoted(part)) - len(_quoted(""))
        whole = whole and part == text
        shown.append(_row(source, part, "" if part == text else f"[0-{len(part)}]/{len(text)}"))
    return _dump(shown), whole


def _count_fitting(rows: Sequence[dict[str, Any]], max_chars: int) -> int:
    kept, used = 0, len("[]")
    for row in rows:
        used += len(_dump(row)) + len(",")
        if used > max_chars:
            break
        kept += 1
    return kept


def _row(source: Source, part: str, shown: str) -> dict[str, Any]:
    row: dict[str, Any] = {"sid": source.sid, "title": source.title, "url": source.url[:MAX_URL_CHARS]}
    if source.source_type != "web":
        row["source_type"] = source.source_type
    if source.published_time_iso:
        row["published_time_iso"] = source.published_time_iso
    if source.mime:
        row["mime"] = source.mime
    if shown:
        row["text_shown"] = shown
    return row | {"text": part}


def _fitting(text: str, room: int) -> str:
    """The longest beginning whose JSON needs at most `room` characters more than an empty text."""
    if len(_quoted(text)) - 2 <= room:
        return text
    low, high = 0, min(len(text), max(0, room))
    while low < high:
        middle = (low + high + 1) // 2
        if len(_quoted(text[:middle])) - 2 <= room:
            low = middle
        else:
            high = middle - 1
    return text[:low] if low >= _MIN_TEXT_CHARS else ""


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _dump(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
