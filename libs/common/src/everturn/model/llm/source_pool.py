"""Merging what tools found into the source pool of a conversation: a known source keeps its number for ever."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from everturn.errors import Invalid
from everturn.model.llm.source_keys import source_key
from everturn.model.llm.sources import Source, SourceType

MAX_ROWS = 5_000
"""Of one conversation; a worker holds the rows of its turns in memory."""
MAX_TEXT_CHARS = 200_000
"""Of one source's whole text."""
SNIPPET_CHARS = 600
"""How much of its text a row carries in memory."""
MAX_TITLE_CHARS = 300
_MAX_FIELD_CHARS = 2048
_UNSTORABLE = re.compile(r"[\x00\ud800-\udfff]")


class PoolFull(Invalid):
    """The source pool of this conversation takes no further source."""


@dataclass(frozen=True, slots=True)
class SourceDraft:
    """What a tool found, before it has a number. `url` is a web address or the `fi:` ref of a file; `text` is whole."""

    title: str
    url: str
    source_type: SourceType = "web"
    objective_relevance: float | None = None
    published_time_iso: str | None = None
    favicon_url: str | None = None
    text: str = ""
    mime: str = ""


@dataclass(frozen=True, slots=True)
class SourceChange:
    """A row to store. `text` is the new whole text; None leaves the stored one."""

    row: Source
    text: str | None = None

    def after(self, before: "SourceChange | None") -> "SourceChange":
        """Both changes of one row in one."""
        return replace(self, text=before.text) if before is not None and self.text is None else self


@dataclass(frozen=True, slots=True)
class Merged:
    """`rows` has the row of each draft, in order; `changes` the new and changed rows, each once."""

    rows: tuple[Source, ...]
    changes: tuple[SourceChange, ...]


def merge_sources(known: Mapping[str, Source], drafts: Iterable[SourceDraft]) -> Merged:
    """Give each draft its row. `known` are the rows by key, their numbers 1 to its size.

    A known source takes the longer title and text, the greater relevance, and fields it lacked. Raises Invalid for a
    draft without a usable address and PoolFull when there is no room; then nothing is merged.
    """
    found: dict[str, SourceChange] = {}
    keys: list[str] = []
    last_sid = max((row.sid for row in known.values()), default=0)
    for draft in drafts:
        key = source_key(draft.url)
        keys.append(key)
        earlier = found.get(key)
        row = earlier.row if earlier else known.get(key)
        if row is None:
            last_sid += 1
            row = Source(last_sid, "", _clean(draft.url.strip()), draft.source_type, key=key)
        found[key] = _take(row, draft).after(earlier)
    if last_sid > MAX_ROWS:
        raise PoolFull(f"It has {len(known)} rows.")
    changes = tuple(change for key, change in found.items() if change.row != known.get(key))
    return Merged(tuple(found[key].row for key in keys), changes)


def snippet_of(text: str) -> str:
    """What a row carries of a whole text."""
    return " ".join(text[: 4 * SNIPPET_CHARS].split())[:SNIPPET_CHARS]


def _take(row: Source, draft: SourceDraft) -> SourceChange:
    title = " ".join(_clean(draft.title).split())[:MAX_TITLE_CHARS]
    text = _bounded(_clean(draft.text))
    longer = len(text) > row.text_chars
    merged = replace(
        row,
        title=title if len(title) > len(row.title) else row.title,
        text=snippet_of(text) if longer else row.text,
        text_chars=len(text) if longer else row.text_chars,
        objective_relevance=_greater(row.objective_relevance, draft.objective_relevance),
        published_time_iso=row.published_time_iso or _field(draft.published_time_iso),
        favicon_url=row.favicon_url or _field(draft.favicon_url),
        mime=row.mime or _field(draft.mime) or "",
    )
    return SourceChange(merged, text if longer else None)


def _bounded(text: str) -> str:
    if len(text) <= MAX_TEXT_CHARS:
        return text
    note = f"\n[Cut here: the whole text has {len(text)} characters.]"
    return text[: MAX_TEXT_CHARS - len(note)] + note


def _greater(one: float | None, other: float | None) -> float | None:
    rated = [relevance for relevance in (one, other) if relevance is not None]
    return max(rated, default=None)


def _field(text: str | None) -> str | None:
    return _clean(text)[:_MAX_FIELD_CHARS] if text else None


def _clean(text: str) -> str:
    """No database and no wire takes these characters."""
    return _UNSTORABLE.sub("\ufffd", text)
