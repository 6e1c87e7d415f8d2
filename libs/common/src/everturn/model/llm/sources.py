"""A source the conversation knows: one row of its source pool, and what an answer that cites it keeps of it."""

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from pydantic import BaseModel, ConfigDict

SourceType = Literal["web", "file", "attachment", "manual"]

_WEB_ADDRESS = re.compile(r"https?://[^\s/?#\x00-\x1f\x7f]+[^\x00-\x1f\x7f]*", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Source:
    """One row. `sid` counts from 1 and never changes within a conversation; `objective_relevance` is 0 to 1.

    `url` is a web address, or a ref if it is a file. In a source pool `text` is the beginning of the whole text, which
    has `text_chars` characters; `used` tells that an answer or a file has cited it; `key` is what it is known by.
    """

    sid: int
    title: str
    url: str
    source_type: SourceType = "web"
    objective_relevance: float | None = None
    published_time_iso: str | None = None
    favicon_url: str | None = None
    text: str = ""
    mime: str = ""
    text_chars: int = 0
    used: bool = False
    key: str = ""

    @property
    def is_image(self) -> bool:
        """Images are there to be rendered; nothing is cited from them."""
        return self.mime.lower().startswith("image/")

    @property
    def web_url(self) -> str | None:
        """The address if it is one that may become a link."""
        return self.url if _WEB_ADDRESS.fullmatch(self.url) else None

    @property
    def is_evidence(self) -> bool:
        """Whether an answer may cite it: a web address that is no image."""
        return self.web_url is not None and not self.is_image


class Citation(BaseModel):
    """A source as it was when an answer cited it: what clients show, whatever becomes of the row later."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    sid: int
    title: str
    url: str
    source_type: SourceType = "web"
    published_time_iso: str | None = None
    favicon_url: str | None = None


def build_citations(rows: Iterable[Source], sids: Collection[int]) -> tuple[Citation, ...]:
    """The citations of these numbers by number; only evidence is cited."""
    cited = sorted((row for row in rows if row.sid in sids and row.is_evidence), key=lambda row: row.sid)
    return tuple(
        Citation(
            sid=row.sid,
            title=row.title,
            url=row.url,
            source_type=row.source_type,
            published_time_iso=row.published_time_iso,
            favicon_url=row.favicon_url,
        )
        for row in cited
    )


def try_source(row: Mapping[str, object]) -> Source | None:
    """A row as bundles and old clients write it; None if it has no usable `sid`. Unknown fields are ignored."""
    sid = _whole_number(row.get("sid"))
    if sid is None or sid < 1:
        return None
    return Source(
        sid=sid,
        title=_text(row.get("title")),
        url=_text(row.get("url")),
        source_type=_source_type(row.get("source_type")),
        objective_relevance=_number(row.get("objective_relevance")),
        published_time_iso=_text(row.get("published_time_iso")) or None,
        favicon_url=_text(row.get("favicon_url")) or None,
        text=_text(row.get("text")),
        mime=_text(row.get("mime")),
    )


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _whole_number(value: object) -> int | None:
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= 9:
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _source_type(value: object) -> SourceType:
    for known in get_args(SourceType):
        if value == known:
            return known
    return "web"
