"""The outcome of a task: its text for the answer, and the program it still needs."""

from dataclasses import dataclass
from typing import assert_never

from chat_proc.models.offline.answering import try_answer
from chat_proc.models.offline.answers import (
    describe_preview,
    render_capabilities,
    render_failure,
    render_program_output,
    render_table_answer,
    suggest_questions,
)
from chat_proc.models.offline.columns import match_figures
from chat_proc.models.offline.programs import Program, build_analysis, build_name, build_user_program
from chat_proc.models.offline.questions import (
    KnownTask,
    ProgramTask,
    TableTask,
    TalkTask,
    Task,
    asks_for_table,
    is_table,
    read_columns,
)
from chat_proc.models.offline.reading import Call, Conversation
from chat_proc.models.offline.recall import INTRODUCTION
from chat_proc.models.offline.reply import RUN_PROGRAM
from chat_proc.models.offline.results import try_read_result
from chat_proc.models.phrases.courtesy import asks_who, drop_greeting, try_reply

_AGAIN = "_again"
_NO_RULE = "no rule can do this; it needs a real model."
_HOW_TO_BEGIN = "Attach a CSV file and ask about it, or ask “What can you do?”."


@dataclass(frozen=True, slots=True)
class Outcome:
    """`text` is part of the answer; an introduction names the model itself."""

    text: str
    ok: bool = True
    followups: tuple[str, ...] = ()
    is_introduction: bool = False


def try_program(task: Task, conversation: Conversation) -> Program | None:
    """The program that this task still needs; a table gets a second, simpler one if the first failed."""
    if RUN_PROGRAM not in conversation.tools:
        return None
    match task:
        case ProgramTask(number=number, code=code):
            name = _user_program_name(number)
            return None if _find_call(name, conversation) else build_user_program(code, name=name)
        case TableTask():
            return _try_analysis(task, conversation)
        case TalkTask() | KnownTask():
            return None
        case _:
            assert_never(task)


def report(task: Task, conversation: Conversation, *, alone: bool) -> Outcome:
    """The outcome of a task. One that is not `alone` gets a brief text if no rule matches."""
    match task:
        case ProgramTask(number=number):
            return _report_program(_find_call(_user_program_name(number), conversation), conversation)
        case TableTask():
            return _report_table(task, conversation)
        case KnownTask(text=text, last=last):
            return Outcome(text, followups=tuple(each for each in suggest_questions(last) if each != "Which was best?"))
        case TalkTask():
            return _report_talk(task, conversation, alone=alone)
        case _:
            assert_never(task)


def is_second_try(program: Program) -> bool:
    """Whether this program is a second attempt after a failed one."""
    return program.name.endswith(_AGAIN)


def _try_analysis(task: TableTask, conversation: Conversation) -> Program | None:
    name = build_name(task.table, task.number)
    first, second = _find_call(name, conversation), _find_call(name + _AGAIN, conversation)
    if first is not None and (second is not None or _is_answered(first)):
        return None
    return build_analysis(task.analysis, name=name if first is None else name + _AGAIN, with_chart=first is None)


def _is_answered(call: Call) -> bool:
    return call.report is not None and (bool(call.ok) or try_read_result(call.report) is not None)


def _find_call(name: str, conversation: Conversation) -> Call | None:
    return next((call for call in reversed(conversation.now.calls) if call.prog_name == name), None)


def _user_program_name(number: int) -> str:
    return "user_program" if number == 1 else f"user_program_{number}"


def _report_program(call: Call | None, conversation: Conversation) -> Outcome:
    if call is None:
        return Outcome(_why_not_run(conversation), ok=False)
    if call.report is None:
        return Outcome("Your program was started, but it is not known how it ended.", ok=False)
    return Outcome(render_program_output(call.report, ok=bool(call.ok)), ok=bool(call.ok))


def _report_table(task: TableTask, conversation: Conversation) -> Outcome:
    name = build_name(task.table, task.number)
    calls = [call for call in (_find_call(name, conversation), _find_call(name + _AGAIN, conversation)) if call]
    if not calls:
        seen = describe_preview(task.table, task.columns)
        return Outcome(f"{seen} {_why_not_run(conversation)}", ok=False)
    for call in reversed(calls):
        result = try_read_result(call.report or "")
        if result is not None:
            stem, charted = name.removeprefix("analyse_"), call.prog_name == name
            outputs = [f"outputs/{stem}.png"] * charted + [f"outputs/{stem}{'' if charted else _AGAIN}.csv"]
            text = render_table_answer(result, outputs if call.ok else [])
            return Outcome(text, ok=result.error is None, followups=suggest_questions(result))
    text = calls[-1].report or "The program has no result."
    return Outcome(render_failure(f"The program for {task.table.name} failed, also the second time:", text), ok=False)


def _why_not_run(conversation: Conversation) -> str:
    if RUN_PROGRAM not in conversation.tools:
        state = f" ({conversation.code_state.rstrip('.')})" if conversation.code_state else ""
        return (
            f"The code tool is not offered here{state}, so I can't run programs and compute nothing. "
            "On the machine of the server, `make doctor` says why and how to mend it."
        )
    return "I could not run a program for it in this turn, so I compute nothing."


def _report_talk(task: TalkTask, conversation: Conversation, *, alone: bool) -> Outcome:
    if task.ask.kind == "steer":
        return Outcome(_answer_steer(task, conversation))
    text = drop_greeting(task.ask.text)
    answer = try_answer(text, conversation)
    if answer is not None:
        greets = alone and not task.step and (try_reply(text) or "").startswith("Hello")
        return Outcome(f"{answer} {_HOW_TO_BEGIN}" if greets else answer, is_introduction=alone and asks_who(text))
    if task.step:
        return Outcome(_NO_RULE, ok=False)
    if not alone:
        return Outcome(f"I can't answer “{' '.join(text.split())[:200]}”: {_NO_RULE}", ok=False)
    if (problem := _name_problem(text, conversation)) is not None:
        return Outcome(f"{problem} Ask “What can you do?” for what I understand.", ok=False)
    unknown = "I have no rule for that." if text.strip() else ""
    if any(INTRODUCTION in turn.completion for turn in conversation.turns[:-1]):
        return Outcome(f"{unknown} {_HOW_TO_BEGIN}".strip(), ok=False)
    return Outcome(f"{unknown}\n\n{render_capabilities()}".strip(), is_introduction=True)


def _name_problem(text: str, conversation: Conversation) -> str | None:
    """Why a question about a file has no answer; None if it is not about one."""
    names = ", ".join(file.name for file in conversation.now.attachments if not is_table(file))
    if names:
        return f"I can't read {names}. I can read only CSV and TSV files."
    known = [file for turn in conversation.turns for file in turn.attachments if is_table(file)]
    if known and match_figures(text):
        columns = ", ".join(read_columns(known[-1].preview)[:20])
        told = f"; its columns are {columns}" if columns else ""
        return f"I found nothing in {known[-1].name} that matches this{told}."
    if not known and (asks_for_table(text) or match_figures(text)):
        return "There is no CSV file in this conversation yet; attach one (in the terminal with `--file sales.csv`)."
    return None


def _answer_steer(task: TalkTask, conversation: Conversation) -> str:
    done = [call.report for call in conversation.now.calls if call.ok and call.report]
    results = [result for report in done if (result := try_read_result(report)) is not None]
    so_far = render_table_answer(results[-1], []) if results else "There is no result yet."
    opening = f"I stopped for your instruction: “{task.ask.text[:200]}”." if task.ask.text else "Stopped, as you asked."
    return f"{opening} What I have so far:\n\n{so_far}"
