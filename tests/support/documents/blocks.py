"""The blocks of a document that readers run or save, and the output it documents."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

FENCE = re.compile(r"^```(\w*)(?: file=(\S+))?$")
ANYTHING = "…"


class BadDocument(Exception):
    """Its blocks are ambiguous."""


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block that begins at `line`. `file` is the name it is to be saved under, None for what is typed.

    `shown` is the text block behind it: what it prints, with `…` for what differs each time.
    """

    line: int
    language: str
    text: str
    file: str | None = None
    shown: str | None = None


def read_blocks(text: str) -> list[Block]:
    """The blocks in order. Raises BadDocument for an unclosed block, and for a text block after no other."""
    blocks: list[Block] = []
    for block in _split(text):
        if block.language != "text":
            blocks.append(block)
        elif blocks and blocks[-1].shown is None and blocks[-1].file is None:
            blocks[-1] = replace(blocks[-1], shown=block.text)
        else:
            raise BadDocument(f"Line {block.line}: nothing before it prints that.")
    return blocks


def _split(text: str) -> Iterator[Block]:
    inside: list[str] | None = None
    begun, language, file = 0, "", None
    for number, line in enumerate(text.splitlines(), 1):
        opened = FENCE.match(line)
        if inside is None and opened:
            begun, language, file, inside = number, opened[1], opened[2], []
        elif inside is not None and line == "```":
            yield Block(begun, language, "".join(f"{each}\n" for each in inside), file)
            inside = None
        elif inside is not None:
            inside.append(line)
    if inside is not None:
        raise BadDocument(f"Line {begun}: this block does not end.")


def fits(shown: str, printed: str) -> bool:
    """Whether it printed what is shown: `…` in a line is any text of that line, a line of its own any lines."""
    lines = (r"[\s\S]*?" if line == ANYTHING else _line(line) for line in shown.strip().splitlines())
    return re.fullmatch(r"\n".join(lines), printed.strip()) is not None


def _line(line: str) -> str:
    return ".*?".join(re.escape(part) for part in line.rstrip().split(ANYTHING)) + r"[ \t]*"
