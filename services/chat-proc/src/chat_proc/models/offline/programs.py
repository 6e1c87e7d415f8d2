"""Builds the programs that the offline model runs, from a template in a data file and parameters as a JSON literal."""

import json
import re
from dataclasses import dataclass
from importlib.resources import files

from chat_proc.models.offline.reading import Attachment

_PACKAGE = "chat_proc.models.offline"
_PARAMS_MARK = "__PARAMS__"
_MAIN_MARK = "\ndef main():"


@dataclass(frozen=True, slots=True)
class Program:
    """A program with the files it promises: (filepath, description) each."""

    name: str
    code: str
    outputs: tuple[tuple[str, str], ...]


def build_analysis(table: Attachment, *, name: str, question: str, before: str, with_chart: bool) -> Program:
    """The program that answers a question about a table. `before` is the question before, for what this one omits."""
    stem = name.removeprefix("analyse_")
    chart_file, table_file = f"outputs/{stem}.png", f"outputs/{stem}.csv"
    params = {
        "path": table.path,
        "question": question[:2_000],
        "before": before[:2_000],
        "chart_file": chart_file if with_chart else None,
        "table_file": table_file,
    }
    outputs = [(chart_file, f"Chart of {table.name}")] if with_chart else []
    return Program(name, _fill_template(params), (*outputs, (table_file, f"Figures of {table.name}")))


def build_user_program(code: str, *, name: str) -> Program:
    """The user's own program, as given; it promises no files."""
    return Program(name, re.sub(r"^(</?channel:)", r" \1", code, flags=re.MULTILINE | re.IGNORECASE), ())


def build_name(table: Attachment, number: int) -> str:
    """`analyse_<file>`, with a number from the second question of a turn on."""
    stem = re.sub(r"[^a-z0-9]+", "_", table.name.rsplit(".", 1)[0].lower()).strip("_")[:40] or "table"
    return f"analyse_{stem}" if number == 1 else f"analyse_{stem}_{number}"


def _fill_template(params: dict[str, str | None]) -> str:
    template = _load("analyse_table.txt")
    literal = repr(json.dumps(params, ensure_ascii=True))
    head, main, rest = template.replace(_PARAMS_MARK, literal).partition(_MAIN_MARK)
    return f"{head}\n{_load('columns.py').strip()}\n\n{main}{rest}"


def _load(name: str) -> str:
    return files(_PACKAGE).joinpath(name).read_text(encoding="utf-8")
