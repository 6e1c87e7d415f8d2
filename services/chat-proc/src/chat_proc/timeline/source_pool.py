"""SOURCES POOL: what the conversation can cite, bounded, behind everything that a provider caches."""

import re
from collections.abc import Sequence

from everturn.model.llm.sources import Source
from everturn.model.llm.tokens import CharsPerToken
from everturn.model.refs import MAX_SIDS, sources_ref
from everturn.timeline.inert import escape_line, make_inert

SHOWN_RECENT = 15
SHOWN_USED = 15
MAX_TITLE_CHARS = 100
MAX_ADDRESS_CHARS = 100
MAX_SNIPPET_CHARS = 200
_USUAL = CharsPerToken()


def build_source_pool(rows: Sequence[Source]) -> str:
    """The recent rows and those that were cited, by number, and how many there are besides; empty for an empty pool."""
    if not rows:
        return ""
    by_sid = sorted(rows, key=lambda row: row.sid)
    used = [row for row in by_sid if row.used][-SHOWN_USED:]
    shown = sorted({row.sid: row for row in (*used, *by_sid[-SHOWN_RECENT:])}.values(), key=lambda row: row.sid)
    listed = {row.sid for row in shown}
    left = [row.sid for row in by_sid if row.sid not in listed]
    last = shown[-1].sid
    lines = [
        f"[SOURCES POOL] {len(by_sid)} sources",
        f'(whole text: react.read paths=["{sources_ref([last])}"], several: "so:sources_pool[1-3,7]")',
        *(line for row in shown for line in _row_lines(row)),
    ]
    if left:
        lines.append(f'({len(left)} more, not listed: react.read paths=["{sources_ref(left[-MAX_SIDS:])}"])')
    return "\n".join(lines) + "\n\n"


def _row_lines(row: Source) -> list[str]:
    title = _cut(" ".join(row.title.split()), MAX_TITLE_CHARS) or "(no title)"
    tokens = f"~{_USUAL.tokens_for(row.text_chars)} tokens" if row.text_chars else "no text"
    quoted = escape_line(title.replace("\\", "\\\\").replace('"', '\\"'))
    head = f'S:{row.sid} "{quoted}" {row.source_type} {_address(row)} {tokens}{" used" if row.used else ""}'
    snippet = "" if row.is_image else _cut(" ".join(row.text.split()), MAX_SNIPPET_CHARS)
    return [head, make_inert(f"  {escape_line(snippet)}")] if snippet else [head]


def _address(row: Source) -> str:
    """The host of a web address, the whole ref of a file."""
    host = re.split(r"[/?#]", row.url, maxsplit=3)[2] if row.web_url else row.url
    return escape_line(_cut(host, MAX_ADDRESS_CHARS))


def _cut(text: str, cap: int) -> str:
    return text if len(text) <= cap else text[:cap] + "..."
