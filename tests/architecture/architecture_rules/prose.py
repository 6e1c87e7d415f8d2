"""Words that are not used here, because the field has a plain one, and log events that are not sentences."""

import ast
import re
from collections.abc import Iterator

from architecture_rules.sources import Module, Violation

# Put together from parts, so that this file passes its own check.
BANNED = [
    "to" + "ld", "tell" + "s", "men" + "ds?", "men" + "ded", "men" + "ding", "an" + "ew", "who" + "ever",
    "lets? " + "go", "at " + "rest", "who " + "asks", "taken " + "up", "nobody" + "'s", "stands " + "in", "twi" + "ns?",
    "thought " + "better", "as" + "kers?", "pati" + "ence", "keep" + "ers?", "stand" + "ing", "stands " + "still",
    "stood " + "still",
]  # fmt: skip
_WORDS = "|".join([*BANNED, *(word.replace(" ", "_") for word in BANNED if " " in word)])
_BANNED = re.compile(rf"(?<![A-Za-z])(?:{_WORDS})(?![A-Za-z])", re.IGNORECASE)
_SENTENCE = re.compile(r"[A-Z][^.]*( [^ .]+)+")
LOG_METHODS = frozenset({"debug", "info", "warning", "error", "exception", "critical"})
FROZEN = (
    "migrations/sql/tables/feedback.sql",
    "migrations/sql/grants.sql",
    "libs/common/src/everturn/feedback/postgres.py",
    "libs/common/src/everturn/turns/postgres_timelines.py",
)
"""SQL with a column that has such a name: the baseline of migrations does not change."""
_COLUMN = re.compile(r"\bto" + r"ld\b")
_QUALIFIED_COLUMN = re.compile(r"(?<=\bf\.)to" + r"ld\b")
"""That column in a function, with the alias of its table."""


def check_words(path: str, text: str) -> Iterator[Violation]:
    """No line has a banned word, alone or as a part of a name."""
    column = _COLUMN if path in FROZEN else _QUALIFIED_COLUMN
    for number, line in enumerate(text.splitlines(), 1):
        if found := _BANNED.search(column.sub("", line)):
            yield Violation(path, number, f"says {found[0]!r}: use the plain term of the field")


def check_log_events(module: Module) -> Iterator[Violation]:
    """The event of a log line is a sentence without a period; values are fields."""
    for node in module.nodes:
        match node:
            case ast.Call(
                func=ast.Attribute(value=ast.Name(id="_log"), attr=method), args=[ast.Constant(value=str(event)), *_]
            ) if method in LOG_METHODS and not _SENTENCE.fullmatch(event):
                yield Violation(module.path, node.lineno, f"logs {event!r}, which is not a sentence")
            case _:
                pass
