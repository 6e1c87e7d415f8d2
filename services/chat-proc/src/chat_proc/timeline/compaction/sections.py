"""The text of a summary: lists of lines with headings, parsed from a model's reply, merged, cut to a size, and
rendered."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum

from chat_proc.timeline.artifacts import block_artifacts
from everturn.core.refs import turn_index_ref
from everturn.timeline.blocks import Block
from everturn.timeline.inert import escape_field

CUT = "…"
_REF = re.compile(r"\b(?:so:[\w.-]*\[[0-9, -]*\]|(?:ar|tc|fi|so|su|ws|ks|sk):[^\s\"'`<>|,;()\[\]{}…]+)")
_TRAILING = ".:!?*_"

TokensOf = Callable[[str], int]
"""Estimated tokens of a text."""

_HASHED = re.compile(r"#{1,6}\s")
_BULLET = re.compile(r"[-*•]\s+")
_NOTHING = frozenset({"", "-", "none", "none.", "n/a", "(none)", "nothing"})
_SIZES = ((600, 40), (300, 40), (300, 20), (160, 20), (160, 10), (100, 10), (100, 5), (100, 2), (60, 1))
"""Characters of a line and lines of a section, tried in order."""


class KnownRefs:
    """The refs that a text may name. File names can contain blanks, which only the known ref reveals."""

    def __init__(self, refs: Iterable[str]) -> None:
        # Headers escape some characters of names, and a summary may copy the escaped form.
        self._refs = frozenset(spelling for ref in refs for spelling in (ref, escape_field(ref)))
        self._odd = tuple(sorted((ref for ref in self._refs if _REF.fullmatch(ref) is None), key=len, reverse=True))

    def __contains__(self, ref: str) -> bool:
        return ref in self._refs

    def spans(self, line: str) -> list[tuple[int, int, bool]]:
        """Start, end and whether it is known, of everything in a line that looks like a ref."""
        spans: list[tuple[int, int, bool]] = []
        for match in _REF.finditer(line):
            odd = next((ref for ref in self._odd if line.startswith(ref, match.start())), None)
            if odd is not None:
                spans.append((match.start(), match.start() + len(odd), True))
                continue
            ref = match[0].rstrip(_TRAILING)
            spans.append((match.start(), match.start() + len(ref), match[0] in self._refs or ref in self._refs))
        return spans


NO_REFS = KnownRefs(())


def find_refs(text: str) -> list[str]:
    """Everything in a text that looks like a ref, in order; a ref with blanks only up to the first blank."""
    return [match[0].rstrip(_TRAILING) for match in _REF.finditer(text)]


def known_refs(blocks: Iterable[Block], texts: Iterable[str]) -> KnownRefs:
    """The refs of these blocks, of their files and their turns' indexes, and those that the texts show."""
    known: set[str] = set()
    for block in blocks:
        known |= {block.ref, turn_index_ref(block.turn_id), *(artifact.ref for artifact in block_artifacts(block))}
    for text in texts:
        known.update(find_refs(text))
    return KnownRefs(known)


def drop_unknown(text: str, known: KnownRefs) -> str:
    """The text without the lines that name an unknown ref."""
    lines = (line for line in text.splitlines() if all(is_known for _, _, is_known in known.spans(line)))
    return "\n".join(lines)


def cut_line(text: str, max_chars: int, known: KnownRefs = NO_REFS) -> str:
    """The text on one line of at most `max_chars`; a ref that does not fit is left out, never cut."""
    line = " ".join(text.split())
    if len(line) <= max_chars:
        return line
    end = max(0, max_chars - len(CUT))
    end = next((start for start, stop, _ in known.spans(line) if start < end < stop), end)
    kept = line[:end].rstrip(" (-:,;")
    return kept + CUT if kept else ""


def cut_text(text: str, max_chars: int, known: KnownRefs = NO_REFS) -> str:
    """The text with its line breaks, cut to `max_chars`; no ref is cut."""
    if len(text) <= max_chars:
        return text
    whole, rest = "", text[: max(0, max_chars - len(CUT))]
    head, newline, last = rest.rpartition("\n")
    if newline:
        whole = head + newline
    original = text[len(whole) :].partition("\n")[0]
    return (whole + cut_line(original, len(last) + len(CUT), known)).rstrip()


class Section(StrEnum):
    """The headings, in the order in which they are written."""

    ACTIVE = "Active request"
    ANCHORS = "Retrieval anchors"
    REFS = "Read refs"
    DONE = "Done"
    OPEN = "Open"
    NEXT = "Next"
    DECISIONS = "Decisions"
    PREFERENCES = "Preferences"
    FACTS = "Critical facts"
    CALLS = "Calls"


Sections = Mapping[Section, Sequence[str]]
"""Lines by heading; the newest line of a section is its last."""

_BY_NAME = {section.value.casefold(): section for section in Section}
_NAMES = "|".join(re.escape(section.value) for section in Section)
_HEADING = re.compile(rf"[#*\s]*({_NAMES})\**\s*:?\**\s*(.*)", re.IGNORECASE)


def parse_sections(text: str) -> Sections:
    """Read a summary. Lines before the first known heading, or under another one, count as critical facts."""
    found: dict[Section, list[str]] = {}
    present = Section.FACTS
    for raw in text.splitlines():
        line = raw.strip()
        heading = _try_heading(line)
        if heading is not None:
            present, line = heading
        elif _HASHED.match(line):
            present = Section.FACTS
            continue
        line = _BULLET.sub("", line, count=1).strip()
        if line.casefold() not in _NOTHING:
            found.setdefault(present, []).append(line)
    return found


def render_sections(sections: Sections) -> str:
    """`## Heading` and one `- line` for each line; empty sections are left out."""
    parts = [
        "\n".join((f"## {section.value}", *(f"- {line}" for line in sections[section])))
        for section in Section
        if sections.get(section)
    ]
    return "\n".join(parts)


def merge_sections(older: Sections, newer: Sections) -> Sections:
    """Both, the newer lines last. A line in both is kept once, at its newer place."""
    return {
        section: _unique((*older.get(section, ()), *newer.get(section, ())))
        for section in Section
        if older.get(section) or newer.get(section)
    }


def fit_sections(sections: Sections, max_tokens: int, tokens_of: TokensOf, known: KnownRefs = NO_REFS) -> str:
    """The text, with long lines cut and then older ones dropped until it has at most `max_tokens`."""
    text = render_sections(sections)
    for max_chars, max_lines in _SIZES:
        if tokens_of(text) <= max_tokens:
            return text
        text = render_sections(_shorten(sections, max_chars, max_lines, known))
    while text and tokens_of(text) > max_tokens:
        text = cut_text(text, len(text) // 2, known)
    return text


def _shorten(sections: Sections, max_chars: int, max_lines: int, known: KnownRefs) -> Sections:
    cut = {
        section: [cut_line(line, max_chars, known) for line in lines[-max_lines:]]
        for section, lines in sections.items()
    }
    return {section: [line for line in lines if line] for section, lines in cut.items()}


def _try_heading(line: str) -> tuple[Section, str] | None:
    """The section that begins with this line, and the text after the heading."""
    match = _HEADING.fullmatch(line)
    if match is None:
        return None
    marked = line.startswith(("#", "*")) or not match[2] or ":" in line[: match.start(2)]
    rest = match[2] if ":" in line[: match.start(2)] else ""
    return (_BY_NAME[match[1].casefold()], rest) if marked else None


def _unique(lines: Iterable[str]) -> list[str]:
    kept: dict[str, str] = {}
    for line in lines:
        key = " ".join(line.split()).casefold()
        kept.pop(key, None)
        kept[key] = line
    return list(kept.values())
