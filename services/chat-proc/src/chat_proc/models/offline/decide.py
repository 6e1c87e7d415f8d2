"""The rules of the offline model: from the conversation to the next reply, without state and without chance."""

from dataclasses import dataclass
from typing import assert_never

from chat_proc.models.offline.answers import (
    FOOTNOTE,
    describe_preview,
    render_capabilities,
    render_failure,
    render_program_output,
    render_table_answer,
    suggest_questions,
    try_read_result,
)
from chat_proc.models.offline.columns import match_columns, match_figures, match_group
from chat_proc.models.offline.programs import Program, build_analysis, build_name, build_user_program
from chat_proc.models.offline.questions import (
    ProgramTask,
    TableTask,
    TalkTask,
    Task,
    is_table,
    read_steps,
    read_tasks,
    wants_plan,
)
from chat_proc.models.offline.reading import Call, Conversation
from chat_proc.models.offline.recall import is_about_memory, is_note, recall
from chat_proc.models.offline.reply import MAKE_PLAN, RUN_PROGRAM, Answer, NewPlan, Reply, RunCode

_MAX_NOTICES = 2
"""After two refusals in a turn no further call is tried."""
_AGAIN = "_again"


@dataclass(frozen=True, slots=True)
class _Outcome:
    """What became of one task."""

    text: str
    ok: bool = True
    followups: tuple[str, ...] = ()
    is_introduction: bool = False


def decide(conversation: Conversation) -> Reply:
    """The next reply: a plan first if one is wanted, then a program for each task that needs one, then the answer."""
    tasks = read_tasks(conversation)
    if _may_call(conversation):
        plan = _try_plan(tasks, conversation)
        if plan is not None:
            return plan
        for task in tasks:
            program = _try_program(task, conversation)
            if program is not None:
                return _run(task, program, conversation)
    return _conclude(tasks, conversation)


def _may_call(conversation: Conversation) -> bool:
    steered = any(ask.kind == "steer" for ask in conversation.now.asks[-1:])
    return conversation.rounds_left > 0 and conversation.now.notices < _MAX_NOTICES and not steered


def _try_plan(tasks: list[Task], conversation: Conversation) -> NewPlan | None:
    wanted = next((task for task in tasks if wants_plan(task.ask.text)), None)
    if wanted is None or MAKE_PLAN not in conversation.tools or _has_planned(conversation):
        return None
    return NewPlan(
        thinking="The user wants a plan. I make it first and follow it.",
        notes="Making a plan.",
        steps=read_steps(wanted.ask.text) or _usual_steps(wanted),
    )


def _has_planned(conversation: Conversation) -> bool:
    return any(call.tool_id == MAKE_PLAN for call in conversation.now.calls)


def _usual_steps(task: Task) -> tuple[str, ...]:
    match task:
        case TableTask(table=table):
            return (
                f"Look at the columns of {table.name}",
                "Compute the figures and draw a chart with a program",
                "Answer with the figures",
            )
        case ProgramTask():
            return ("Read the program", "Run it", "Report what it printed")
        case TalkTask():
            return ("Read the request", "Find what the rules can do about it", "Answer")
        case _:
            assert_never(task)


def _try_program(task: Task, conversation: Conversation) -> Program | None:
    """The program that this task still needs; a table gets a second, simpler one when the first failed."""
    if RUN_PROGRAM not in conversation.tools:
        return None
    match task:
        case ProgramTask(number=number, code=code):
            name = _user_program_name(number)
            return None if _find_call(name, conversation) else build_user_program(code, name=name)
        case TableTask():
            return _try_analysis(task, conversation)
        case TalkTask():
            return None
        case _:
            assert_never(task)


def _try_analysis(task: TableTask, conversation: Conversation) -> Program | None:
    name = build_name(task.table, task.number)
    first, second = _find_call(name, conversation), _find_call(name + _AGAIN, conversation)
    if first is not None and (second is not None or _is_answered(first)):
        return None
    return build_analysis(
        task.table,
        name=name if first is None else name + _AGAIN,
        question=task.ask.text,
        before=task.before,
        with_chart=first is None,
    )


def _is_answered(call: Call) -> bool:
    return call.report is not None and (bool(call.ok) or try_read_result(call.report) is not None)


def _find_call(name: str, conversation: Conversation) -> Call | None:
    return next((call for call in reversed(conversation.now.calls) if call.prog_name == name), None)


def _user_program_name(number: int) -> str:
    return "user_program" if number == 1 else f"user_program_{number}"


def _run(task: Task, program: Program, conversation: Conversation) -> RunCode:
    thinking = "The user gave a program; I run it as it is."
    notes = "Running your program."
    if isinstance(task, TableTask):
        thinking = _think_about(task)
        notes = f"Analysing {task.table.name} with a program."
        if program.name.endswith(_AGAIN):
            thinking = "The program failed. I try once more without the chart."
            notes = f"Trying {task.table.name} again without a chart."
    first = not any(call.tool_id == RUN_PROGRAM for call in conversation.now.calls)
    return RunCode(thinking, _mark(notes, conversation, every_step=False) if first else notes, program)


def _think_about(task: TableTask) -> str:
    columns, question = list(task.columns), task.ask.text
    named, group = match_columns(question, columns), match_group(question, columns)
    figures = match_figures(question) or ["the usual figures"]
    parts = [f"The question is about {task.table.name}."]
    if columns:
        parts.append(f"Its columns: {', '.join(columns[:20])}. Named in the question: {', '.join(named) or 'none'}.")
    parts.append(f"I compute {', '.join(figures)}" + (f" by {group}." if group else "."))
    return " ".join(parts)


def _mark(notes: str, conversation: Conversation, *, every_step: bool, failed: bool = False) -> str:
    """The notes with marks for the steps of the plan of this turn: the next one, or at the end all that are open."""
    if conversation.plan is None or not _has_planned(conversation):
        return notes
    todo = [n for n, _, mark in conversation.plan.steps if mark in ("pending", "in_progress")]
    marked = todo if every_step else todo[: 1 if len(todo) > 1 else 0]
    return "\n".join([notes, *(f"{'✗' if failed else '✓'} [{n}]" for n in marked)])


def _conclude(tasks: list[Task], conversation: Conversation) -> Answer:
    outcomes = [_report(task, conversation) for task in tasks]
    body = "\n\n".join(outcome.text for outcome in outcomes)
    ok = all(outcome.ok for outcome in outcomes)
    undone = _undone_steps(tasks, conversation)
    notes = "Answering." if undone else _mark("Answering.", conversation, every_step=True, failed=not ok)
    footnote = "" if all(outcome.is_introduction for outcome in outcomes) else FOOTNOTE
    text = "\n\n".join(part for part in (_render_plan(conversation), body, undone, footnote) if part)
    goal = " / ".join(" ".join(task.ask.text.split())[:200] for task in tasks)
    return Answer(
        thinking="I have what the rules can give; I answer now.",
        notes=notes,
        text=text,
        followups=next((outcome.followups for outcome in reversed(outcomes) if outcome.followups), ()),
        summary=f"Goal: {goal}\nOutcome: {'answered' if ok else 'not done'}\nFacts: {body[:600]}",
    )


def _render_plan(conversation: Conversation) -> str:
    if conversation.plan is None or not _has_planned(conversation):
        return ""
    steps = "\n".join(f"{n}. {label}" for n, label, _ in conversation.plan.steps)
    return f"The plan:\n{steps}"


def _undone_steps(tasks: list[Task], conversation: Conversation) -> str:
    """Steps that the user listed and no rule can carry out stay open, and the answer says so."""
    talk_only = all(isinstance(task, TalkTask) for task in tasks)
    if conversation.plan is None or not (talk_only and any(read_steps(task.ask.text) for task in tasks)):
        return ""
    return "I have written the plan down, but carrying out these steps needs a real model; they stay open."


def _report(task: Task, conversation: Conversation) -> _Outcome:
    match task:
        case ProgramTask(number=number):
            return _report_program(_find_call(_user_program_name(number), conversation), conversation)
        case TableTask():
            return _report_table(task, conversation)
        case TalkTask():
            return _talk(task, conversation)
        case _:
            assert_never(task)


def _report_program(call: Call | None, conversation: Conversation) -> _Outcome:
    if call is None:
        return _Outcome(_why_not_run(conversation), ok=False)
    if call.report is None:
        return _Outcome("Your program was started, but it is not known how it ended.", ok=False)
    return _Outcome(render_program_output(call.report, ok=bool(call.ok)), ok=bool(call.ok))


def _report_table(task: TableTask, conversation: Conversation) -> _Outcome:
    name = build_name(task.table, task.number)
    calls = [call for call in (_find_call(name, conversation), _find_call(name + _AGAIN, conversation)) if call]
    if not calls:
        seen = describe_preview(task.table, task.columns)
        return _Outcome(f"{seen} {_why_not_run(conversation)}", ok=False)
    for call in reversed(calls):
        result = try_read_result(call.report or "")
        if result is not None:
            stem, charted = name.removeprefix("analyse_"), call.prog_name == name
            outputs = [f"outputs/{stem}.png"] * charted + [f"outputs/{stem}{'' if charted else _AGAIN}.csv"]
            text = render_table_answer(result, outputs if call.ok else [])
            return _Outcome(text, ok=result.error is None, followups=suggest_questions(result))
    report = calls[-1].report or "The program has no result."
    why = f"The program for {task.table.name} failed, also the second time:"
    return _Outcome(render_failure(why, report), ok=False)


def _why_not_run(conversation: Conversation) -> str:
    if RUN_PROGRAM not in conversation.tools:
        return "The code tool is not offered here, so I can't run programs and compute nothing."
    return "I could not run a program for it in this turn, so I compute nothing."


def _talk(task: TalkTask, conversation: Conversation) -> _Outcome:
    if task.ask.kind == "steer":
        return _Outcome(_answer_steer(task, conversation))
    question = task.ask.text
    recalled = recall(question, conversation)
    if recalled is not None:
        return _Outcome(recalled)
    if is_note(question):
        return _Outcome("Noted; I can quote it back to you later in this conversation.")
    if is_about_memory(question):
        return _Outcome("I find nothing about that earlier in this conversation.")
    return _Outcome("\n\n".join([*_unreadable_files(conversation), render_capabilities()]), is_introduction=True)


def _unreadable_files(conversation: Conversation) -> list[str]:
    names = ", ".join(file.name for file in conversation.now.attachments if not is_table(file))
    return [f"I can't read {names}: of files I understand only CSV and TSV."] if names else []


def _answer_steer(task: TalkTask, conversation: Conversation) -> str:
    done = [call.report for call in conversation.now.calls if call.ok and call.report]
    results = [result for report in done if (result := try_read_result(report)) is not None]
    so_far = render_table_answer(results[-1], []) if results else "There is no result yet."
    opening = f"I stopped for your instruction: “{task.ask.text[:200]}”." if task.ask.text else "Stopped, as you asked."
    return f"{opening} What I have so far:\n\n{so_far}"
