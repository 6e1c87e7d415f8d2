"""Builds the offline model's programs from templates in data files and parameters as a JSON literal."""

import json
import re
from dataclasses import asdict, dataclass, field
from importlib.resources import files

from chat_proc.models.offline.columns import match_chart
from chat_proc.models.offline.reading import Attachment

_PACKAGE = "chat_proc.models.offline"
_PARAMS_MARK = "__PARAMS__"
_PARTS = ("templates/read_table.txt", "templates/pick_rows.txt", "templates/draw_chart.txt", "columns.py")
_THING = r"(?:file|data|dataset|csv|table|it|this|that|\S+\.[ct]sv)"
_OVERVIEW = re.compile(
    r"\b(?:describe|summar\w*|overview|profile|explore|what do you see)\b"
    r"|\b(?:missing|unique|distinct|different|empty) (?:values?|cells?)\b"
    r"|\b(?:what|which|list|show)(?:'s| is| are| do| does)? (?:me )?(?:all )?(?:the )?(?:columns|fields|headers)\b"
    rf"|\bwhat(?:'s| is| does)\b.{{0,15}}\b(?:in|inside) (?:the |this |my |that )?{_THING}"
    rf"|\bwhat(?:'s| is) (?:this|that|it)\b(?: {_THING})?(?: about)?\W*$|\blook like\b"
    rf"|\b(?:analy[sz]e|look at|read|open|load|check|explain|tell me about) (?:\w+ ){{0,2}}{_THING}(?=\W*$|[.!?])",
    re.IGNORECASE,
)
_HEAD = re.compile(
    r"\b(?:first|top|show|see|print|list)\b.{0,12}\b(?:(\d{1,2}|three|five|ten) )?(?:rows|lines|records)\b"
    r"|\bpreview\b|\bhead\b",
    re.IGNORECASE,
)
_COUNTS = {"three": 3, "five": 5, "ten": 10}
_MAX_HEAD_ROWS = 10


@dataclass(frozen=True, slots=True)
class Program:
    """A program with its declared files: (filepath, description) each."""

    name: str
    code: str
    outputs: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Base:
    """What a question omits because the previous analysis defined it. `by` are columns with a period or None."""

    by: tuple[tuple[str, str | None], ...] = ()
    measures: tuple[str, ...] = ()
    figures: tuple[str, ...] = ()
    filters: dict[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])


@dataclass(frozen=True, slots=True)
class Analysis:
    """A question about a table. `about` is a name that may be a value in the table ("what about X?")."""

    table: Attachment
    question: str
    base: Base = field(default_factory=Base)
    about: str | None = None


def build_analysis(analysis: Analysis, *, name: str, with_chart: bool) -> Program:
    """The program that answers a question about a table."""
    stem, question, table = name.removeprefix("analyse_"), analysis.question[:2_000], analysis.table
    chart_file, table_file = f"outputs/{stem}.png", f"outputs/{stem}.csv"
    params: dict[str, object] = {
        "path": table.path,
        "question": question,
        "base": asdict(analysis.base),
        "about": analysis.about,
        "overview": is_overview(question),
        "head_rows": _read_head_rows(question),
        "chart_file": chart_file if with_chart else None,
        "chart_kind": match_chart(question),
        "table_file": table_file,
    }
    outputs = [(chart_file, f"Chart of {table.name}")] if with_chart else []
    return Program(name, _fill_template(params), (*outputs, (table_file, f"Figures of {table.name}")))


def build_user_program(code: str, *, name: str) -> Program:
    """The user's own program, unchanged; it declares no files."""
    return Program(name, re.sub(r"^(</?channel:)", r" \1", code, flags=re.MULTILINE | re.IGNORECASE), ())


def build_name(table: Attachment, number: int) -> str:
    """`analyse_<file>`, with a number from the second question of a turn on."""
    stem = re.sub(r"[^a-z0-9]+", "_", table.name.rsplit(".", 1)[0].lower()).strip("_")[:40] or "table"
    return f"analyse_{stem}" if number == 1 else f"analyse_{stem}_{number}"


def is_overview(question: str) -> bool:
    """Whether the question is about what is in the table rather than about figures."""
    return _OVERVIEW.search(question) is not None or _HEAD.search(question) is not None


def _read_head_rows(question: str) -> int:
    found = _HEAD.search(question)
    asked = re.search(r"\b(\d{1,2}|three|five|ten)\b", found[0]) if found else None
    count = 5 if asked is None else _COUNTS.get(asked[1]) or int(asked[1])
    return min(count, _MAX_HEAD_ROWS) if found else 0


def _fill_template(params: dict[str, object]) -> str:
    literal = repr(json.dumps(params, ensure_ascii=True))
    main = _load("templates/analyse_table.txt").replace(_PARAMS_MARK, literal)
    parts = "\n\n\n".join(_load(name).strip() for name in _PARTS)
    return f'{main.strip()}\n\n\n{parts}\n\n\nprint("RESULT " + json.dumps(main(), ensure_ascii=False))\n'


def _load(name: str) -> str:
    return files(_PACKAGE).joinpath(name).read_text(encoding="utf-8")
