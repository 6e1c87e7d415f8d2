"""Understands by rules what the user wants: a program run, a table analysed, something recalled, a plan, or talk."""

import csv
import re
from dataclasses import dataclass

from chat_proc.models.offline.columns import match_columns, match_figures, match_group, match_period, plain
from chat_proc.models.offline.reading import Ask, Attachment, Conversation
from chat_proc.models.offline.recall import recall

_FENCE = re.compile(r"```(?:python3?|py)[ \t]*\n", re.IGNORECASE)
_PLAN = re.compile(
    r"\b(?:make|create|write|draw up|give|with|need|want|follow|use)\b.{0,30}\bplan\b"
    r"|\bplan\b.{0,40}\bsteps?\b|\bstep[- ]by[- ]step\b|^\s*plan\b",
    re.IGNORECASE,
)
_LISTED = re.compile(r"^\s*(?:\d+[.)]|[-*•])\s+(.{2,200})$", re.MULTILINE)
_TABLE_WORDS = re.compile(
    r"\b(csv|table|file|data|dataset|rows?|columns?|chart|plot|graph|diagram|analy[sz]e|analysis|trend|compare|breakdown)\b",
    re.IGNORECASE,
)
_MAX_STEPS = 10


@dataclass(frozen=True, slots=True)
class ProgramTask:
    """Run the program that the user gave."""

    ask: Ask
    number: int
    code: str


@dataclass(frozen=True, slots=True)
class TableTask:
    """Answer a question about a table; `columns` are those the preview shows, maybe none."""

    ask: Ask
    number: int
    table: Attachment
    before: str
    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TalkTask:
    """Nothing to run: recall, or say what can be done."""

    ask: Ask
    number: int


Task = ProgramTask | TableTask | TalkTask


def read_tasks(conversation: Conversation) -> list[Task]:
    """One task for each thing said in this turn, in order; what a steer interrupted is left out."""
    asks = list(conversation.now.asks)
    steers = [at for at, ask in enumerate(asks) if ask.kind == "steer"]
    start = steers[-1] if steers else 0
    return [read_task(asks[at], conversation, at + 1) for at in range(start, len(asks))]


def read_task(ask: Ask, conversation: Conversation, number: int) -> Task:
    """What this one thing asks for. `number` counts the things said in this turn, from 1."""
    program, _ = split_program(ask.text)
    if program is not None:
        return ProgramTask(ask, number, program)
    table = _choose_table(ask, conversation)
    if table is None or ask.kind == "steer" or _is_remembered(ask, conversation):
        return TalkTask(ask, number)
    return TableTask(ask, number, table, _question_before(conversation, number), tuple(read_columns(table.preview)))


def split_program(text: str) -> tuple[str | None, str]:
    """The first fenced Python program, if there is a whole one, and the text around it."""
    fence = _FENCE.search(text)
    end = text.find("```", fence.end()) if fence is not None else -1
    if fence is None or end < 0:
        return None, text
    return text[fence.end() : end], text[: fence.start()] + text[end + 3 :]


def wants_plan(text: str) -> bool:
    """Whether the user asks for a plan."""
    return _PLAN.search(split_program(text)[1]) is not None


def read_steps(text: str) -> tuple[str, ...]:
    """The steps that the user lists, when there are at least two."""
    steps = tuple(step.strip() for step in _LISTED.findall(split_program(text)[1]))[:_MAX_STEPS]
    return steps if len(steps) > 1 else ()


def read_columns(preview: str) -> list[str]:
    """The column names in the first line of a preview."""
    first = next((line for line in preview.split("\n") if line.strip()), "").strip("\ufeff")
    if not first:
        return []
    rows = [next(csv.reader([first], delimiter=mark)) for mark in ",;\t|"]
    return [name.strip() for name in max(rows, key=len) if name.strip()]


def is_table(file: Attachment) -> bool:
    """Whether a file is one that the analysis program reads."""
    return file.name.lower().endswith((".csv", ".tsv")) or file.mime in ("text/csv", "text/tab-separated-values")


def _is_remembered(ask: Ask, conversation: Conversation) -> bool:
    """Whether the answer was already given; a file that is new in this turn is always looked at."""
    return not any(map(is_table, conversation.now.attachments)) and recall(ask.text, conversation) is not None


def _choose_table(ask: Ask, conversation: Conversation) -> Attachment | None:
    """The table that is named, else the newest; one of an earlier turn only for a question that fits a table."""
    fresh = [file for file in conversation.now.attachments if is_table(file)]
    known = [file for turn in conversation.turns for file in turn.attachments if is_table(file)]
    named = [file for file in known if file.name.casefold() in ask.text.casefold()]
    if named:
        return named[-1]
    if fresh:
        return fresh[-1]
    return known[-1] if known and _fits_table(ask.text, known[-1]) else None


def _fits_table(question: str, table: Attachment) -> bool:
    columns = read_columns(table.preview)
    return bool(
        _TABLE_WORDS.search(question)
        or match_figures(question)
        or match_period(question)
        or match_group(question, columns)
        or match_columns(question, columns)
        or re.search(r"\b(by|per|each) \w+", plain(question))
    )


def _question_before(conversation: Conversation, number: int) -> str:
    """What was asked before this: earlier in the turn, else the prompt of the turn before."""
    asks = conversation.now.asks[: number - 1] or (conversation.turns[-2].asks if len(conversation.turns) > 1 else ())
    return asks[-1].text if asks else ""
