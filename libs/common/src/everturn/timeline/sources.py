"""Sources of a conversation: a row of its source pool, the key that identifies a source, and how a pool grows."""

import hashlib
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Literal, get_args
from urllib.parse import urlunsplit

from pydantic import BaseModel, ConfigDict

from everturn.core.errors import Invalid
from everturn.core.refs import KnowledgeRef, knowledge_ref, parse_ref
from everturn.core.storable import replace_unstorable
from everturn.core.urls import split_url

SourceType = Literal["web", "file", "attachment", "manual"]

_WEB_ADDRESS = re.compile(r"https?://[^\s/?#\x00-\x1f\x7f]+[^\x00-\x1f\x7f]*", re.IGNORECASE)

MAX_KEY_CHARS = 1000
"""An index row of the database holds no more than 2704 bytes."""
_TRACKING = frozenset(
    (
        "gclid",
        "gclsrc",
        "dclid",
        "gbraid",
        "wbraid",
        "fbclid",
        "msclkid",
        "yclid",
        "twclid",
        "igshid",
        "mc_cid",
        "mc_eid",
    )
)
"""Parameters that identify the click, never the page. The prefix `utm_` marks the others of that kind."""
_ESCAPE = re.compile(r"%([0-9A-Fa-f]{2})")
_UNRESERVED = re.compile(r"[A-Za-z0-9._~-]")

MAX_ROWS = 5_000
"""Limit for one conversation; a worker holds the rows of its turns in memory."""
MAX_TEXT_CHARS = 200_000
"""Limit for one source's full text."""
SNIPPET_CHARS = 600
"""How much of its full text a row has in memory."""
MAX_TITLE_CHARS = 300
_MAX_FIELD_CHARS = 2048


@dataclass(frozen=True, slots=True)
class Source:
    """One row. `sid` counts from 1 and never changes within a conversation; `objective_relevance` is 0 to 1.

    `url` is a web address, or a ref if it is a file. In a source pool `text` is the beginning of the full text, which
    has `text_chars` characters; `used` means that an answer or a file has cited it; `key` identifies it.
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
        """Images are only rendered, never cited."""
        return self.mime.lower().startswith("image/")

    @property
    def web_url(self) -> str | None:
        """The address if it is suitable for a link."""
        return self.url if _WEB_ADDRESS.fullmatch(self.url) else None

    @property
    def is_evidence(self) -> bool:
        """Whether an answer can cite it: a document of the agent's knowledge, or a web address that is not an image."""
        return (self.web_url is not None or self.url.startswith("ks:")) and not self.is_image


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
    """The citations with these numbers, sorted by number; only evidence is cited."""
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


def source_key(address: str) -> str:
    """The key of a web address, of a file by its `fi:` ref, or of a document of the agent's knowledge by its `ks:` ref.
    Raises Invalid for anything else.

    Two spellings of one address have one key: it ignores case of scheme and host, the default port, unnecessary
    escapes, the fragment and tracking parameters. Other ports, numeric addresses and all other differences count.
    """
    if address.startswith("fi:"):
        return _bounded(f"file:{parse_ref(address)}")
    if address.startswith("ks:") and isinstance(ref := parse_ref(address), KnowledgeRef):
        return _bounded(f"knowledge:{knowledge_ref(ref.document)}")
    return _bounded(normalize_url(address))


def normalize_url(url: str) -> str:
    """The canonical spelling of an http(s) address; a canonical one is unchanged. Raises Invalid for any other."""
    parts, netloc = split_url(url)
    path = _ESCAPE.sub(_plain_escape, parts.path) or "/"
    return urlunsplit((parts.scheme.lower(), netloc, path, _without_tracking(parts.query), ""))


def _without_tracking(query: str) -> str:
    kept = [part for part in query.split("&") if part and not _is_tracking(part.partition("=")[0])]
    return _ESCAPE.sub(_plain_escape, "&".join(kept))


def _is_tracking(name: str) -> bool:
    name = _ESCAPE.sub(_plain_escape, name).lower()
    return name.startswith("utm_") or name in _TRACKING


def _plain_escape(found: re.Match[str]) -> str:
    char = chr(int(found[1], 16))
    return char if _UNRESERVED.fullmatch(char) else found[0].upper()


def _bounded(key: str) -> str:
    if len(key) <= MAX_KEY_CHARS and key.isascii():
        return key
    return f"sha256:{hashlib.sha256(key.encode(errors='surrogatepass')).hexdigest()}"


class PoolFull(Invalid):
    """The source pool of this conversation takes no further source."""


@dataclass(frozen=True, slots=True)
class SourceDraft:
    """A source that a tool found, before it has a number. `url` is a web address, the `fi:` ref of a file, or the
    `ks:` ref of a document; `text` is the full text."""

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
    """A row to store. `text` is the new full text; None keeps the stored one."""

    row: Source
    text: str | None = None

    def after(self, before: "SourceChange | None") -> "SourceChange":
        """Both changes of one row combined."""
        return replace(self, text=before.text) if before is not None and self.text is None else self


@dataclass(frozen=True, slots=True)
class Merged:
    """`rows` has the row of each draft, in order; `changes` the new and changed rows, each once."""

    rows: tuple[Source, ...]
    changes: tuple[SourceChange, ...]


def merge_sources(known: Mapping[str, Source], drafts: Iterable[SourceDraft]) -> Merged:
    """Give each draft its row. `known` are the rows by key, numbered from 1 to its size.

    A known source gets the longer title and text, the greater relevance, and fields it lacked. Raises Invalid for a
    draft without a usable address and PoolFull when the pool is full; then nothing is merged.
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
            row = Source(last_sid, "", replace_unstorable(draft.url.strip()), draft.source_type, key=key)
        found[key] = _take(row, draft).after(earlier)
    if last_sid > MAX_ROWS:
        raise PoolFull(f"It has {len(known)} rows.")
    changes = tuple(change for key, change in found.items() if change.row != known.get(key))
    return Merged(tuple(found[key].row for key in keys), changes)


def snippet_of(text: str) -> str:
    """The part of a full text that a row contains."""
    return " ".join(text[: 4 * SNIPPET_CHARS].split())[:SNIPPET_CHARS]


def _take(row: Source, draft: SourceDraft) -> SourceChange:
    title = " ".join(replace_unstorable(draft.title).split())[:MAX_TITLE_CHARS]
    text = _bound_row(replace_unstorable(draft.text))
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


def _bound_row(text: str) -> str:
    if len(text) <= MAX_TEXT_CHARS:
        return text
    note = f"\n[Cut here: the whole text has {len(text)} characters.]"
    return text[: MAX_TEXT_CHARS - len(note)] + note


def _greater(one: float | None, other: float | None) -> float | None:
    rated = [relevance for relevance in (one, other) if relevance is not None]
    return max(rated, default=None)


def _field(text: str | None) -> str | None:
    return replace_unstorable(text)[:_MAX_FIELD_CHARS] if text else None
