"""Replaces citation tokens such as `[[S:1,3]]` in text that arrives in pieces; a token is never shown in part."""

import html
import re
from collections.abc import Iterable, Mapping
from typing import Literal

from chat_proc.channels.code_fences import FenceTracker
from everturn.model.sources import Source

CitationFormat = Literal["markdown", "text", "html"]

MAX_SIDS_CHARS = 240
MAX_SIDS = 200
MAX_TITLE_CHARS = 200
_MAX_RENDERED = 1_000

_BLANKS = r"[ \t]{0,8}+"
_SIDS = r"[0-9,\-\u2010-\u2014 \t]"
_TOKEN = re.compile(rf"\[\[{_BLANKS}S{_BLANKS}:({_SIDS}{{1,{MAX_SIDS_CHARS}}}+)\]\]", re.IGNORECASE | re.ASCII)
_TOKEN_BEGINNING = re.compile(
    rf"\[\[{_BLANKS}(?:S{_BLANKS}(?::{_SIDS}{{0,{MAX_SIDS_CHARS}}}+\]?)?)?", re.IGNORECASE | re.ASCII
)
_RANGE = re.compile(r"(\d+)(?:[ \t]*[-\u2010-\u2014][ \t]*(\d+))?", re.ASCII)
_MARKDOWN_SPECIAL = re.compile(r"([\\`*_\[\]<>|~!])")
_URL_UNSAFE = re.compile(r"""[ ()<>\[\]"'`\\|]""")


class CitationReplacer:
    """Show what `feed` and at last `finish` return. Unknown ids and text in code fences stay as written."""

    def __init__(self, sources: Mapping[int, Source], output: CitationFormat = "markdown") -> None:
        self._sources = sources
        self._output: CitationFormat = output
        self._fences = FenceTracker()
        self._held = ""
        self._read = 0
        self._used: dict[int, None] = {}
        self._links: dict[int, str] = {}
        self._rendered: dict[str, str] = {}

    @property
    def used_sids(self) -> tuple[int, ...]:
        """Ids of the cited sources that count as evidence, in order of first use."""
        return tuple(self._used)

    def feed(self, text: str) -> str:
        """The text that can be shown now; what may still be a token waits."""
        if self._held:
            text = self._held + text
            self._held = ""
        if "[" not in text:
            self._fences.advance(text)
            return text
        settled = _settled_chars(text)
        if settled < len(text):
            self._held = text[settled:]
            text = text[:settled]
        if self._fences.try_skip(text):
            return _TOKEN.sub(self._rendered_token, text)
        return self._feed_near_fences(text)

    def _feed_near_fences(self, text: str) -> str:
        self._read = 0
        shown = _TOKEN.sub(self._token_outside_fences, text)
        self._fences.advance(text[self._read :])
        if self._held and self._fences.inside:
            self._fences.advance(self._held)
            shown += self._held
            self._held = ""
        return shown

    def finish(self) -> str:
        """A token that never became whole, as it was written."""
        held = self._held
        self._held = ""
        return held

    def _token_outside_fences(self, token: re.Match[str]) -> str:
        """`_read` is how far the fences have been followed in the text that is being searched."""
        self._fences.advance(token.string[self._read : token.start()])
        self._read = token.start()
        return token[0] if self._fences.inside else self._rendered_token(token)

    def _rendered_token(self, token: re.Match[str]) -> str:
        written = token[0]
        return self._rendered.get(written) or self._render(written, token[1])

    def _render(self, token: str, written_ids: str) -> str:
        if len(self._rendered) >= _MAX_RENDERED:
            self._rendered.clear()
        rendered = self._rendered[token] = self._render_sids(token, parse_sids(written_ids))
        return rendered

    def _render_sids(self, token: str, sids: list[int]) -> str:
        cited = [sid for sid in sids if sid in self._sources and not self._sources[sid].is_image]
        if not cited:
            return token
        self._used.update((sid, None) for sid in cited if self._sources[sid].is_evidence)
        shown = self._render_html(cited) if self._output == "html" else " ".join(map(self._markdown_link, cited))
        unknown = [sid for sid in sids if sid not in cited]
        return f"{shown} [[S:{_format_sids(unknown)}]]" if unknown else shown

    def _markdown_link(self, sid: int) -> str:
        if sid not in self._links:
            source = self._sources[sid]
            title = _MARKDOWN_SPECIAL.sub(r"\\\1", _title(source))
            self._links[sid] = f"[{title}]({_escape_url(source.web_url)})" if source.web_url else title
        return self._links[sid]

    def _render_html(self, sids: list[int]) -> str:
        anchors = ", ".join(map(self._html_link, sids))
        return f'<sup class="cite" data-sids="{",".join(map(str, sids))}">{anchors}</sup>'

    def _html_link(self, sid: int) -> str:
        if sid not in self._links:
            source = self._sources[sid]
            title = html.escape(_title(source))
            self._links[sid] = f'<span title="{title}">{sid}</span>'
            if source.web_url:
                address = html.escape(_escape_url(source.web_url))
                self._links[sid] = (
                    f'<a href="{address}" title="{title}" target="_blank" rel="noopener noreferrer">{sid}</a>'
                )
        return self._links[sid]


def index_sources(sources: Iterable[Source]) -> dict[int, Source]:
    """Sources by id, as a replacer takes them."""
    return {source.sid: source for source in sources}


def parse_sids(written: str) -> list[int]:
    """`1, 3, 7-5` gives 1, 3, 5, 6, 7: each once, at most MAX_SIDS; nothing at all if a part is no id and no range."""
    sids: dict[int, None] = {}
    for part in filter(None, (part.strip(" \t") for part in written.split(","))):
        found = _RANGE.fullmatch(part)
        if found is None:
            return []
        first, last = sorted((int(found[1]), int(found[2] or found[1])))
        room = MAX_SIDS - len(sids)
        sids.update(dict.fromkeys(range(first, min(last, first + room - 1) + 1)))
    return list(sids)


def _format_sids(sids: list[int]) -> str:
    """The shortest way to write ascending ids: `2,5-9`."""
    runs: list[list[int]] = []
    for sid in sids:
        if runs and sid == runs[-1][1] + 1:
            runs[-1][1] = sid
        else:
            runs.append([sid, sid])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)


def _title(source: Source) -> str:
    title = " ".join(source.title.split()) or source.url or f"source {source.sid}"
    return title if len(title) <= MAX_TITLE_CHARS else title[:MAX_TITLE_CHARS] + "..."


def _escape_url(url: str) -> str:
    """Characters that could end the address in Markdown are percent-encoded."""
    return _URL_UNSAFE.sub(lambda found: f"%{ord(found[0]):02X}", url)


def _settled_chars(text: str) -> int:
    """How many characters of `text` no continuation can turn into part of a token that is not whole yet."""
    if text.endswith("["):
        return len(text) - (2 if text.endswith("[[") else 1)
    last = text.rfind("[[")
    if last < 0 or text.find("]]", last) >= 0 or not _TOKEN_BEGINNING.fullmatch(text, last):
        return len(text)
    return last
