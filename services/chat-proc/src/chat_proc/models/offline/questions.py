"""Classifies by rules what the user wants: a program run, a table analysed, a known figure, or talk."""

import csv
import re
from dataclasses import dataclass

from chat_proc.models.offline.columns import match_columns, match_figures, match_group, match_period, plain
from chat_proc.models.offline.followups import build_base, fits, is_only_about, read_about, read_known
from chat_proc.models.offline.programs import Analysis, Base, build_name, is_overview
from chat_proc.models.offline.reading import Ask, Attachment, Conversation
from chat_proc.models.offline.recall import is_about_memory, is_about_prompts, is_note, recall
from chat_proc.models.offline.results import TableResult, try_read_result
from chat_proc.models.phrases.arithmetic import try_compute
from chat_proc.models.phrases.clock import try_tell_time
from chat_proc.models.phrases.courtesy import asks_who, drop_greeting, try_reply

_FENCE = re.compile(r"```(?:python3?|py)[ \t]*\n", re.IGNORECASE)
_TABLE_WORDS = re.compile(
    r"\b(csv|table|file|data|dataset|rows?|columns?|chart|plot|graph|diagram|histogram|analy[sz]e|analysis|trend"
    r"|breakdown)\b",
    re.IGNORECASE,
)
_RUN_IT = re.compile(
    r"\b(?:run|execute|try|start)\b.{0,30}\b(?:program|code|script|it|this|that|snippet)\b", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class ProgramTask:
    """Run the user's program. `step` is the number of the task's step in the plan, 0 for none."""

    ask: Ask
    number: int
    code: str
    step: int = 0


@dataclass(frozen=True, slots=True)
class TableTask:
    """Answer a question about a table; `columns` are those in the preview, possibly none."""

    ask: Ask
    number: int
    analysis: Analysis
    columns: tuple[str, ...]
    step: int = 0

    @property
    def table(self) -> Attachment:
        return self.analysis.table


@dataclass(frozen=True, slots=True)
class KnownTask:
    """The last result contains the answer."""

    ask: Ask
    number: int
    text: str
    last: TableResult
    step: int = 0


@dataclass(frozen=True, slots=True)
class TalkTask:
    """Nothing to run: courtesy, arithmetic, the time, recall, or the capabilities."""

    ask: Ask
    number: int
    step: int = 0


Task = ProgramTask | TableTask | KnownTask | TalkTask


def read_task(ask: Ask, conversation: Conversation, number: int, *, step: int = 0, alone: bool = True) -> Task:
    """The task of one question. `number` counts the tasks of this turn from 1, 0 is before all of them.

    A question that is not `alone` in its message refers to a file only if it says so.
    """
    program, _ = split_program(ask.text)
    if program is not None:
        return ProgramTask(ask, number, program, step)
    text = drop_greeting(ask.text)
    if ask.kind == "steer" or _is_talk(text, conversation, alone=alone and not step):
        return TalkTask(ask, number, step)
    last = find_last_result(conversation, number)
    table = _choose_table(text, conversation, last, alone=alone and not step)
    same = last is not None and (table is None or table.name == last.file)
    if last is not None and same and (known := read_known(text, last)) is not None:
        return KnownTask(ask, number, known, last, step)
    if table is None or (not same and _is_recalled(text, conversation)):
        return TalkTask(ask, number, step)
    base = build_base(text, last) if last is not None and same else Base()
    analysis = Analysis(table, text, base, read_about(text) if same else None)
    return TableTask(ask, number, analysis, tuple(read_columns(table.preview)), step)


def read_program_step(label: str, program: str | None) -> str | None:
    """The program of the message, if this step of its plan runs it."""
    return program if program is not None and _RUN_IT.search(label) else None


def split_program(text: str) -> tuple[str | None, str]:
    """The first complete fenced Python program, if any, and the text around it."""
    fence = _FENCE.search(text)
    end = text.find("```", fence.end()) if fence is not None else -1
    if fence is None or end < 0:
        return None, text
    return text[fence.end() : end], text[: fence.start()] + text[end + 3 :]


def read_columns(preview: str) -> list[str]:
    """The column names in the first line of a preview."""
    first = next((line for line in preview.split("\n") if line.strip()), "").strip("\ufeff")
    if not first:
        return []
    rows = [next(csv.reader([first], delimiter=mark)) for mark in ",;\t|"]
    return [name.strip() for name in max(rows, key=len) if name.strip()]


def is_table(file: Attachment) -> bool:
    """Whether the analysis program can read the file."""
    kind = file.mime.partition(";")[0]
    return file.name.lower().endswith((".csv", ".tsv")) or kind in ("text/csv", "text/tab-separated-values")


def asks_for_table(question: str) -> bool:
    """Whether the question mentions a table or an operation on one."""
    return _TABLE_WORDS.search(question) is not None or is_overview(question)


def find_last_result(conversation: Conversation, number: int) -> TableResult | None:
    """The newest successful analysis before task `number` of this turn."""
    tables = _known_tables(conversation)
    names = {build_name(table, at) + again for table in tables for at in range(1, number) for again in ("", "_again")}
    calls = [call for turn in conversation.turns[:-1] for call in turn.calls]
    calls += [call for call in conversation.now.calls if call.prog_name in names]
    results = (try_read_result(call.report or "") for call in reversed(calls))
    return next((result for result in results if result is not None and result.error is None), None)


def _is_talk(text: str, conversation: Conversation, *, alone: bool) -> bool:
    if try_compute(text) is not None or try_tell_time(text, conversation.now_utc, conversation.timezone) is not None:
        return True
    if alone and any(map(is_table, conversation.now.attachments)):
        return False
    is_memory = is_about_prompts(text) or is_note(text) or is_about_memory(text)
    return is_memory or asks_who(text) or try_reply(text) is not None


def _is_recalled(text: str, conversation: Conversation) -> bool:
    """Whether the answer was already given; a file that is new in this turn is always analysed."""
    return not any(map(is_table, conversation.now.attachments)) and recall(text, conversation) is not None


def _known_tables(conversation: Conversation) -> list[Attachment]:
    return [file for turn in conversation.turns for file in turn.attachments if is_table(file)]


def _choose_table(text: str, conversation: Conversation, last: TableResult | None, *, alone: bool) -> Attachment | None:
    """The named table, otherwise a new one, otherwise the one of the last analysis; None for unrelated talk."""
    known = _known_tables(conversation)
    named = [file for file in known if file.name.casefold() in text.casefold()]
    if named:
        return named[-1]
    fresh = [file for file in conversation.now.attachments if is_table(file)]
    before = [file for file in known if last is not None and file.name == last.file]
    for tables in (fresh, before, known):
        if tables:
            best = max(
                tables, key=lambda file: (len(match_columns(text, read_columns(file.preview))), tables.index(file))
            )
            if (alone and tables is fresh) or _fits_table(text, best, last):
                return best
    return None


def _fits_table(question: str, table: Attachment, last: TableResult | None) -> bool:
    columns = read_columns(table.preview)
    if asks_for_table(question):
        return True
    if match_group(question, columns) or match_columns(question, columns):
        return True
    if last is not None and last.file == table.name and fits(question, last):
        return True
    figures = bool(match_figures(question) or match_period(question))
    return (figures and is_only_about(question, columns)) or bool(
        re.search(r" (per|each) \w+ $| by \w+ $", plain(question))
    )
