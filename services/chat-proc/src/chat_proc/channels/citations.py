"""Replaces citation tokens such as `[[S:1,3]]` in text that arrives in pieces, except in code. A token is never shown
partially."""

import html
import re
from collections.abc import Iterable, Mapping
from typing import Literal, get_args

from chat_proc.models.markdown_code import CodeSplitter, Span
from everturn.timeline.sources import Source

CitationFormat = Literal["markdown", "text", "html"]

MAX_SIDS_CHARS = 240
MAX_SIDS = 200
MAX_TITLE_CHARS = 200
_MAX_RENDERED = 1_000

_BLANKS = r"[ \t]{0,8}+"
_SIDS = r"[0-9,\-\u2010-\u2014 \t]"
_TOKEN = re.compile(rf"\[\[{_BLANKS}S{_BLANKS}:{_SIDS}{{1,{MAX_SIDS_CHARS}}}+\]\]", re.IGNORECASE | re.ASCII)
_TOKEN_BEGINNING = re.compile(
    rf"\[\[{_BLANKS}(?:S{_BLANKS}(?::{_SIDS}{{0,{MAX_SIDS_CHARS}}}+\]?)?)?", re.IGNORECASE | re.ASCII
)
_RANGE = re.compile(r" *(?:(\d+) *(?:[-\u2010-\u2014] *(\d+) *)?)?", re.ASCII)
_MARKDOWN_ESCAPES = str.maketrans({special: f"\\{special}" for special in "\\`*_[]<>|~!"})
# Characters that could end the address in Markdown are percent-encoded.
_URL_UNSAFE = re.compile(r"""[ ()<>\[\]"'`\\|]""")


class CitationReplacer:
    """Show what `feed` and finally `finish` return. Unknown ids and text in code remain as written."""

    def __init__(self, sources: Mapping[int, Source], output: CitationFormat = "markdown") -> None:
        self._sources = sources
        self._output: CitationFormat = output
        self._code = CodeSplitter()
        self._held = ""
        self._used: dict[int, None] = {}
        self._links: dict[int, str] = {}
        self._evidence: set[int] = set()
        self._rendered: dict[str, str] = {}

    @property
    def used_sids(self) -> tuple[int, ...]:
        """Ids of the cited sources that count as evidence, in order of first use."""
        return tuple(self._used)

    def feed(self, text: str) -> str:
        """Return the text that can be shown now; what may become a token or code is held back."""
        if self._code.try_pass(text):
            return self._replace(text)
        return "".join(map(self.feed_span, self._code.feed(text)))

    def feed_span(self, span: Span) -> str:
        """The same for a text that its owner has split, instead of `feed`."""
        return self._replace(span.text) if span.kind == "text" else self._release() + span.text

    def finish(self) -> str:
        """Return the rest; an incomplete token remains as written."""
        return "".join(map(self.feed_span, self._code.finish())) + self._release()

    def _release(self) -> str:
        held, self._held = self._held, ""
        return held

    def _replace(self, text: str) -> str:
        if self._held:
            text = self._release() + text
        if "[" not in text:
            return text
        settled = _settled_chars(text)
        if settled < len(text):
            text, self._held = text[:settled], text[settled:]
        return _TOKEN.sub(self._render_token, text)

    def _render_token(self, found: re.Match[str]) -> str:
        token = found[0]
        rendered = self._rendered.get(token)
        if rendered is None:
            if len(self._rendered) >= _MAX_RENDERED:
                self._rendered.clear()
            sids = token[token.index(":") + 1 : -2]
            rendered = self._rendered[token] = self._render_sids(token, parse_sids(sids))
        return rendered

    def _render_sids(self, token: str, sids: list[int]) -> str:
        links = {sid: link for sid in sids if (link := self._link(sid))}
        if not links:
            return token
        self._used.update((sid, None) for sid in links if sid in self._evidence)
        shown = _sup(links) if self._output == "html" else " ".join(links.values())
        if len(links) == len(sids):
            return shown
        return f"{shown} [[S:{_format_sids([sid for sid in sids if sid not in links])}]]"

    def _link(self, sid: int) -> str:
        """How one source is shown; empty for an unknown source or an image, which are not cited."""
        source = self._sources.get(sid)
        if source is None or source.is_image:
            return ""
        if sid not in self._links:
            self._links[sid] = self._render_source(source)
        return self._links[sid]

    def _render_source(self, source: Source) -> str:
        url = source.web_url
        if source.is_evidence:
            self._evidence.add(source.sid)
        if url is not None:
            url = _URL_UNSAFE.sub(_percent_encode, url)
        title = " ".join(source.title.split())[:MAX_TITLE_CHARS] or source.url or f"source {source.sid}"
        return _html_link(source.sid, title, url) if self._output == "html" else _markdown_link(title, url)


class _Verbatim:
    """For formats without citations."""

    def feed(self, text: str) -> str:
        return text

    def finish(self) -> str:
        return ""


Citer = CitationReplacer | _Verbatim
"""Converts text that arrives in pieces to its shown form."""


def build_citer(sources: Mapping[int, Source], text_format: str) -> Citer:
    """A replacer for markdown, text and html; other formats, such as json, are shown unchanged."""
    for output in get_args(CitationFormat):
        if output == text_format:
            return CitationReplacer(sources, output)
    return _Verbatim()


def cite_text(sources: Mapping[int, Source], text: str, text_format: str = "markdown") -> str:
    """The shown form of a whole text: the same as a citer returns for its pieces."""
    citer = build_citer(sources, text_format)
    return citer.feed(text) + citer.finish()


def find_used_sids(sources: Mapping[int, Source], text: str, text_format: str = "markdown") -> tuple[int, ...]:
    """The evidence that a text cites, in order of first use."""
    citer = build_citer(sources, text_format)
    citer.feed(text)
    citer.finish()
    return citer.used_sids if isinstance(citer, CitationReplacer) else ()


def index_sources(sources: Iterable[Source]) -> dict[int, Source]:
    """Sources by id, as a replacer expects them."""
    return {source.sid: source for source in sources}


def parse_sids(written: str) -> list[int]:
    """`1, 3, 7-5` gives 1, 3, 5, 6, 7: each once, at most MAX_SIDS; empty if any part is neither an id nor a range."""
    sids: dict[int, None] = {}
    for part in written.replace("\t", " ").split(","):
        found = _RANGE.fullmatch(part)
        if found is None:
            return []
        if found[1]:
            first = int(found[1])
            last = int(found[2] or first)
            if last < first:
                first, last = last, first
            room = MAX_SIDS - len(sids)
            sids.update(dict.fromkeys(range(first, min(last, first + room - 1) + 1)))
    return list(sids)


def renumber_citations(text: str, numbers: Mapping[int, int]) -> str:
    """The text with tokens that cite other numbers in place of theirs. A number without another one is left out, and so
    is a token without any."""

    def renumber(found: re.Match[str]) -> str:
        sids = parse_sids(found[0][found[0].index(":") + 1 : -2])
        wanted = sorted({numbers[sid] for sid in sids if sid in numbers})
        return f"[[S:{_format_sids(wanted)}]]" if wanted else ""

    return _TOKEN.sub(renumber, text)


def _format_sids(sids: list[int]) -> str:
    """The shortest way to write ascending ids: `2,5-9`."""
    runs: list[list[int]] = []
    for sid in sids:
        if runs and sid == runs[-1][1] + 1:
            runs[-1][1] = sid
        else:
            runs.append([sid, sid])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)


def _markdown_link(title: str, url: str | None) -> str:
    title = title.translate(_MARKDOWN_ESCAPES)
    return f"[{title}]({url})" if url else f"({title})"


def _html_link(sid: int, title: str, url: str | None) -> str:
    title = html.escape(title)
    if not url:
        return f'<span title="{title}">{sid}</span>'
    return f'<a href="{html.escape(url)}" title="{title}" target="_blank" rel="noopener noreferrer">{sid}</a>'


def _sup(links: Mapping[int, str]) -> str:
    return f'<sup class="cite" data-sids="{",".join(map(str, links))}">{", ".join(links.values())}</sup>'


def _percent_encode(found: re.Match[str]) -> str:
    return f"%{ord(found[0]):02X}"


def _settled_chars(text: str) -> int:
    """How many characters of the non-empty `text` can't become part of a token, whatever follows."""
    if text[-1] == "[":
        return len(text) - (2 if text.endswith("[[") else 1)
    last = text.rfind("[[")
    if last < 0 or text.find("]]", last) >= 0 or not _TOKEN_BEGINNING.fullmatch(text, last):
        return len(text)
    return last
