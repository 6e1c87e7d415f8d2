"""Splits the messages of a turn into tasks: the steps of a plan, or independent questions."""

import re

from chat_proc.models.offline.answering import is_understood
from chat_proc.models.offline.followups import read_about
from chat_proc.models.offline.questions import (
    KnownTask,
    ProgramTask,
    TableTask,
    TalkTask,
    Task,
    is_table,
    read_program_step,
    read_task,
    split_program,
)
from chat_proc.models.offline.reading import Ask, Conversation
from chat_proc.models.phrases.named_steps import read_steps, wants_plan

_SENTENCE = re.compile(r"(?<=[.!?])[\"”)]?\s+(?=\S)|\s*\n+\s*")
_MARKER = re.compile(r"^\s*(?:\(?\d{1,2}[.):]|[-*•])\s+")
_ABBREVIATION = re.compile(r"\b(?:e\.g|i\.e|etc|vs|Mr|Mrs|Dr|approx)\.$|^\d{1,2}\.$", re.IGNORECASE)
_MAX_TASKS = 12


def read_tasks(conversation: Conversation) -> list[Task]:
    """The tasks of this turn in order, numbered from 1, without those that a steer interrupted."""
    tasks: list[Task] = []
    start = 0
    for ask in conversation.now.asks:
        if ask.kind == "steer":
            start = len(tasks)
        tasks += _read_ask(ask, conversation, len(tasks) + 1)
    return tasks[start : start + _MAX_TASKS]


def find_plan_ask(conversation: Conversation) -> Ask | None:
    """The message of this turn that asks for a plan."""
    return next((ask for ask in conversation.now.asks if wants_plan(split_program(ask.text)[1])), None)


def _read_ask(ask: Ask, conversation: Conversation, number: int) -> list[Task]:
    program, text = split_program(ask.text)
    if ask.kind == "steer":
        return [read_task(ask, conversation, number)]
    labels = read_steps(text) if ask == find_plan_ask(conversation) else ()
    if labels:
        return [
            _read_step(Ask(ask.kind, label), conversation, number + at, step=at + 1, program=program)
            for at, label in enumerate(labels)
        ]
    if program is not None:
        return [read_task(ask, conversation, number)]
    pieces = split_questions(ask, conversation)
    alone = len(pieces) == 1
    return [read_task(Ask(ask.kind, piece), conversation, number + at, alone=alone) for at, piece in enumerate(pieces)]


def _read_step(label: Ask, conversation: Conversation, number: int, *, step: int, program: str | None) -> Task:
    code = read_program_step(label.text, program)
    if code is not None:
        return ProgramTask(label, number, code, step)
    return read_task(label, conversation, number, step=step)


def split_questions(ask: Ask, conversation: Conversation) -> list[str]:
    """The independent questions; sentences of one analysis stay together.

    Depends on earlier turns only, so that the result is the same in every round.
    """
    pieces: list[tuple[str, str]] = []
    for sentence in _split_sentences(ask.text):
        kind = _classify(Ask(ask.kind, sentence), conversation)
        if pieces and _belong_together(pieces[-1], (sentence, kind)):
            text, before = pieces.pop()
            pieces.append((f"{text} {sentence}", "table" if "table" in (before, kind) else "unknown"))
        else:
            pieces.append((sentence, kind))
    understood = [text for text, kind in pieces if kind != "unknown" or text.endswith("?")]
    return understood[:_MAX_TASKS] if len(pieces) > 1 and understood else [ask.text]


def _split_sentences(text: str) -> list[str]:
    sentences: list[str] = []
    for part in _SENTENCE.split(text):
        sentence = part.strip()
        if sentences and _ABBREVIATION.search(sentences[-1]):
            sentences[-1] += f" {sentence}"
        elif sentence:
            sentences.append(sentence)
    return [_MARKER.sub("", sentence) for sentence in sentences]


def _belong_together(first: tuple[str, str], second: tuple[str, str]) -> bool:
    kinds = {first[1], second[1]}
    if not kinds <= {"table", "unknown"}:
        return False
    return not (first[0].endswith("?") and second[0].endswith("?"))


def _classify(ask: Ask, conversation: Conversation) -> str:
    match read_task(ask, conversation, 0, alone=False):
        case TableTask():
            return "table"
        case TalkTask():
            tables = any(is_table(file) for turn in conversation.turns for file in turn.attachments)
            if tables and read_about(ask.text) is not None:
                return "table"
            return "talk" if is_understood(ask.text, conversation) else "unknown"
        case KnownTask() | ProgramTask():
            return "known"
