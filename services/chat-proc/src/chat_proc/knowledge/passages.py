"""Cuts a document into passages at its headings, and finds links that lead nowhere."""

import posixpath
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from itertools import accumulate
from pathlib import PurePosixPath
from urllib.parse import unquote

from everturn.knowledge.store import MAX_PASSAGE_CHARS, Passage

MAX_HEADING_CHARS = 200
MAX_TITLE_CHARS = 200
MAX_LINKS = 2_000
"""Links of one document that are checked."""
PROSE = frozenset((".md", ".markdown", ".mdx", ".rst", ".txt", ".adoc", ".pdf", ".html", ".htm", ".docx"))
"""Endings of files with headings; all others are code or data."""
MARKDOWN = frozenset((".md", ".markdown", ".mdx"))

_FENCE = re.compile(r" {0,3}(`{3,}+|~{3,}+)")
_PAGE = re.compile(r"\[page ([0-9]{1,6})\]")
"""The line before each page of a converted PDF."""
_MARKED = re.compile(r" {0,3}(#{1,6}+|={1,6}+)[ \t]++(\S.{0,300})")
_UNDERLINE = re.compile(r"(=|-|~|\^|\"|\*|\+)\1{2,}+[ \t]*+")
_LEVELS = '=-~^"*+'
_FRONT_MATTER_LINES = 100
_LEAST_CHARS = 100
_LINK = re.compile(r"\]\([ \t]{0,4}+<?+([^)\s<>]{1,500}+)|^ {0,3}\[[^\]\n]{1,200}\]:[ \t]{0,4}+<?+([^\s<>]{1,500}+)")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]{0,20}:|//|#")


@dataclass(frozen=True, slots=True)
class _Heading:
    """A heading that begins at a line, counted from 0."""

    line: int
    level: int
    text: str


@dataclass(frozen=True, slots=True)
class _Section:
    """The lines from `begin` up to but not `end`, under one heading."""

    heading: str
    begin: int
    end: int


def split_document(origin: str, text: str) -> tuple[str, tuple[Passage, ...]]:
    """The title, which is the first heading or else the name of the file, and the passages.

    A passage ends with its page in a PDF, otherwise before a heading, unless it is very short; and before it has more
    than MAX_PASSAGE_CHARS, then at an empty line, if its second half has one. A document has at most about 2,000
    passages.
    """
    lines = text.split("\n")
    starts = list(accumulate((len(line) + 1 for line in lines), initial=0))
    title = PurePosixPath(origin).name
    if _suffix(origin) == ".pdf":
        sections = list(_find_sections(lines, list(_find_pages(lines))))
    else:
        headings = list(_find_headings(lines)) if _suffix(origin) in PROSE else []
        title = next((each.text for each in headings), title)
        least = min(MAX_PASSAGE_CHARS // 2, max(_LEAST_CHARS, len(text) // 1_000))
        sections = _join_short(list(_find_sections(lines, headings)), starts, least)
    return title[:MAX_TITLE_CHARS], tuple(part for section in sections for part in _pack(lines, starts, section))


def _find_sections(lines: list[str], headings: list[_Heading]) -> Iterator[_Section]:
    above: list[_Heading] = []
    begin = 0
    for heading in [*headings, None]:
        end = len(lines) if heading is None else heading.line
        # A heading without text of its own is named by the sections below it.
        own = begin + 1 if above and heading is not None else begin
        if any(line.strip() for line in lines[own:end]):
            yield _Section(" > ".join(each.text for each in above)[:MAX_HEADING_CHARS], begin, end)
        if heading is not None:
            above = [*(each for each in above if each.level < heading.level), heading]
            begin = end


def _join_short(sections: list[_Section], starts: list[int], least: int) -> list[_Section]:
    """Sections of fewer than `least` characters joined with the next one, if both fit into one passage."""
    joined: list[_Section] = []
    for section in sections:
        last = joined[-1] if joined else section
        is_short = starts[last.end] - starts[last.begin] < least
        if joined and is_short and starts[section.end] - starts[last.begin] <= MAX_PASSAGE_CHARS:
            joined[-1] = _Section(last.heading or section.heading, last.begin, section.end)
        else:
            joined.append(section)
    return joined


def find_broken_links(origin: str, text: str, names: Collection[str], roots: Mapping[str, str]) -> Iterator[str]:
    """Relative links of a Markdown document to files that don't exist, as `origin:line: target`.

    `names` are all files below the roots, and their folders; links that leave the roots but not the tree are not
    checked.
    """
    if _suffix(origin) not in MARKDOWN:
        return
    left = MAX_LINKS
    for number, line in _without_code(text.split("\n")):
        for match in _LINK.finditer(line):
            left -= 1
            if left < 0:
                return
            target = match[1] or match[2]
            if _SCHEME.match(target):
                continue
            path = unquote(re.split(r"[#?]", target, maxsplit=1)[0])
            base = "" if path.startswith("/") else posixpath.dirname(origin)
            found = posixpath.normpath(posixpath.join(base, path.lstrip("/"))) if path else origin
            inside = any(not root or f"{found}/".startswith(f"{root}/") for root in roots.values())
            if found.startswith("..") or (inside and found != "." and found not in names):
                yield f"{origin}:{number}: {target[:200]}"


def find_folders(names: Collection[str]) -> set[str]:
    """The folders of these files."""
    folders: set[str] = set()
    for name in names:
        folder = posixpath.dirname(name)
        while folder and folder not in folders:
            folders.add(folder)
            folder = posixpath.dirname(folder)
    return folders


def _suffix(origin: str) -> str:
    return PurePosixPath(origin.lower()).suffix


def _without_code(lines: list[str]) -> Iterator[tuple[int, str]]:
    """The lines outside of fenced code, with their numbers from 1 on."""
    fence = ""
    for number, line in enumerate(lines, start=1):
        match = _FENCE.match(line)
        if match and not fence:
            fence = match[1]
        elif match and match[1].startswith(fence) and not line.strip().strip(fence[0]):
            fence = ""
        elif not fence:
            yield number, line


def _find_headings(lines: list[str]) -> Iterator[_Heading]:
    front = _count_front_matter(lines)
    before, before_number = "", 0
    for number, line in _without_code(lines):
        if number <= front:
            continue
        if match := _MARKED.match(line):
            text = match[2].rstrip().rstrip("#=").rstrip()
            if text:
                yield _Heading(number - 1, len(match[1]), " ".join(text.split())[:MAX_HEADING_CHARS])
            before = ""
            continue
        text = before.strip()
        if (
            text
            and before_number == number - 1
            and _UNDERLINE.fullmatch(line)
            and not _UNDERLINE.fullmatch(before)
            and len(line.strip()) >= min(3, len(text))
            and text[0] not in "|>-*+"
        ):
            level = 1 + _LEVELS.index(line[0])
            yield _Heading(number - 2, level, " ".join(text.split())[:MAX_HEADING_CHARS])
            before = ""
            continue
        before, before_number = line, number


def _find_pages(lines: list[str]) -> Iterator[_Heading]:
    """The pages of a PDF: its text does not show what is a heading."""
    for number, line in enumerate(lines):
        if match := _PAGE.fullmatch(line):
            yield _Heading(number, 1, f"page {match[1]}")


def _count_front_matter(lines: list[str]) -> int:
    if lines[0].strip() != "---":
        return 0
    ends = (number for number, line in enumerate(lines[1:_FRONT_MATTER_LINES], start=2) if line.strip() == "---")
    return next(ends, 0)


def _pack(lines: list[str], starts: list[int], section: _Section) -> Iterator[Passage]:
    """The passages of a section, without empty lines at their edges."""
    heading, end = section.heading, section.end
    first = section.begin
    while first < end:
        if not lines[first].strip():
            first += 1
            continue
        if len(lines[first]) > MAX_PASSAGE_CHARS:
            for offset in range(0, len(lines[first]), MAX_PASSAGE_CHARS):
                chars = min(MAX_PASSAGE_CHARS, len(lines[first]) - offset)
                yield Passage(heading, first + 1, first + 1, starts[first] + offset, chars)
            first += 1
            continue
        last = first
        gap = first
        while last + 1 < end and starts[last + 2] - 1 - starts[first] <= MAX_PASSAGE_CHARS:
            last += 1
            if not lines[last].strip() and starts[last] - starts[first] > MAX_PASSAGE_CHARS // 2:
                gap = last
        if last + 1 < end and gap > first:
            last = gap - 1
        following = last + 1
        while not lines[last].strip():
            last -= 1
        yield Passage(heading, first + 1, last + 1, starts[first], starts[last] + len(lines[last]) - starts[first])
        first = following
