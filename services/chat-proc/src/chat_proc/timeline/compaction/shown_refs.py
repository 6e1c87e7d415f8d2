"""Refs within texts: finding them, cutting a line without cutting one, and leaving out lines that name unknown ones."""

import re
from collections.abc import Iterable

from chat_proc.timeline.files import block_artifacts
from everturn.model.blocks import Block
from everturn.model.refs import turn_index_ref
from everturn.timeline.inert import escape_field

CUT = "…"
_REF = re.compile(r"\b(?:so:[\w.-]*\[[0-9, -]*\]|(?:ar|tc|fi|so|su|ws|ks|sk):[^\s\"'`<>|,;()\[\]{}…]+)")
_TRAILING = ".:!?*_"


class KnownRefs:
    """The refs that a text may name. Names of files may hold blanks, which nothing but the whole ref tells."""

    def __init__(self, refs: Iterable[str]) -> None:
        # Headers show some characters of names escaped, and a summary may copy them so.
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
    """Everything in a text that looks like a ref, in order; one with blanks in it only up to the first."""
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
    """The text without the lines that name a ref which nobody was shown."""
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
    """The text with its line breaks, its end cut off where it is longer than `max_chars`; no ref is cut."""
    if len(text) <= max_chars:
        return text
    whole, rest = "", text[: max(0, max_chars - len(CUT))]
    head, newline, last = rest.rpartition("\n")
    if newline:
        whole = head + newline
    original = text[len(whole) :].partition("\n")[0]
    return (whole + cut_line(original, len(last) + len(CUT), known)).rstrip()
