"""The rules of the offline model: from the conversation to the next reply, stateless and deterministic."""

from typing import assert_never

from chat_proc.models.offline.answers import FOOTNOTE
from chat_proc.models.offline.columns import match_figures, match_group
from chat_proc.models.offline.outcomes import Outcome, is_second_try, report, try_program
from chat_proc.models.offline.programs import Program, is_overview
from chat_proc.models.offline.questions import KnownTask, ProgramTask, TableTask, TalkTask, Task, split_program
from chat_proc.models.offline.reading import Conversation
from chat_proc.models.offline.reply import (
    MAKE_PLAN,
    RUN_PROGRAM,
    WRITE_FILE,
    Answer,
    NewPlan,
    Reply,
    RunCode,
    WriteNote,
)
from chat_proc.models.offline.tasks import find_plan_ask, read_tasks
from chat_proc.models.phrases.named_steps import read_steps

_NOTHING_ASKED = "I can't see what you asked, it was too much at once. Please ask again in fewer words."
_MAX_NOTICES = 2
"""After two refusals in a turn no further call is made."""


def decide(conversation: Conversation) -> Reply:
    """The next reply: a plan first if requested, then a round for each task that needs one, then the answer."""
    tasks = read_tasks(conversation)
    if _may_call(conversation):
        reply = _try_plan(tasks, conversation) or _try_next_call(tasks, conversation)
        if reply is not None:
            return reply
    return _conclude(tasks, conversation)


def _may_call(conversation: Conversation) -> bool:
    steered = any(ask.kind == "steer" for ask in conversation.now.asks[-1:])
    return conversation.rounds_left > 0 and conversation.now.notices < _MAX_NOTICES and not steered


def _try_plan(tasks: list[Task], conversation: Conversation) -> NewPlan | None:
    ask = find_plan_ask(conversation)
    if ask is None or not tasks or MAKE_PLAN not in conversation.tools or _has_planned(conversation):
        return None
    steps = read_steps(split_program(ask.text)[1])
    return NewPlan(
        thinking=f"The user names {len(steps)} steps." if steps else "The user wants a plan; I make the usual one.",
        notes="Making the plan.",
        steps=steps or _usual_steps(tasks[0]),
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
        case TalkTask() | KnownTask():
            return ("Read the request", "Find what the rules can do about it", "Answer")
        case _:
            assert_never(task)


def _try_next_call(tasks: list[Task], conversation: Conversation) -> Reply | None:
    """A round for the first task that still needs one; the notes mark the steps completed before it."""
    for at, task in enumerate(tasks):
        program = try_program(task, conversation)
        if program is not None:
            return _run(task, program, _mark_steps(tasks[:at], conversation) or _mark_usual(conversation))
        if at + 1 < len(tasks) and _needs_note(task, conversation):
            text = report(task, conversation, alone=False).text
            marks = _mark_steps(tasks[: at + 1], conversation)
            return WriteNote(
                thinking="",
                notes="\n".join([text.split("\n")[0][:200], *marks]),
                path=f"files/step_{task.step}.md",
                content=text,
            )
    return None


def _needs_note(task: Task, conversation: Conversation) -> bool:
    """Whether this step of the plan needs only text and is not marked yet."""
    by_words = isinstance(task, TalkTask | KnownTask) and WRITE_FILE in conversation.tools
    return by_words and task.step in _open_steps(conversation) and report(task, conversation, alone=False).ok


def _run(task: Task, program: Program, marks: list[str]) -> RunCode:
    thinking, notes = "The user gave a program; I run it as it is.", "Running your program."
    if isinstance(task, TableTask):
        thinking, notes = _think_about(task), f"Analysing {task.table.name}."
        if is_second_try(program):
            thinking = "The program failed. I try once more without the chart."
            notes = f"Trying {task.table.name} again without a chart."
    return RunCode(thinking, "\n".join([notes, *marks]), program)


def _think_about(task: TableTask) -> str:
    question, base = task.analysis.question, task.analysis.base
    if is_overview(question):
        return f"I look at what is in {task.table.name}."
    figures = [figure for figure in match_figures(question) if figure not in ("min", "max")] or list(base.figures)
    group = match_group(question, list(task.columns)) or " and ".join(name for name, _ in base.by)
    what = " and ".join(figures).replace("mean", "average") or "the usual figures"
    leaned = " The rest is as in the question before." if base.by or base.filters else ""
    return f"I compute {what}{f' by {group}' if group else ''} from {task.table.name}.{leaned}"


def _open_steps(conversation: Conversation) -> set[int]:
    """The steps of this turn's plan that have no mark yet."""
    if conversation.plan is None or not _has_planned(conversation):
        return set()
    return {n for n, _, mark in conversation.plan.steps if mark in ("pending", "in_progress")}


def _mark_steps(tasks: list[Task], conversation: Conversation) -> list[str]:
    """A mark for each of these tasks that is an unmarked step; a failed step states the reason."""
    still_open = _open_steps(conversation)
    marks: list[str] = []
    for task in tasks:
        if task.step in still_open:
            outcome = report(task, conversation, alone=False)
            why = " " + outcome.text.split("\n")[0][:200]
            marks.append(f"✓ [{task.step}]" if outcome.ok else f"✗ [{task.step}]{why}")
    return marks


def _mark_usual(conversation: Conversation) -> list[str]:
    """The mark of our own plan's first step, which is done when the first program runs."""
    todo = sorted(_open_steps(conversation))
    first = not any(call.tool_id == RUN_PROGRAM for call in conversation.now.calls)
    listed = find_plan_ask(conversation)
    if listed is None or read_steps(split_program(listed.text)[1]) or not first or len(todo) < 2:
        return []
    return [f"✓ [{todo[0]}]"]


def _conclude(tasks: list[Task], conversation: Conversation) -> Answer:
    alone = len(tasks) == 1
    outcomes = [report(task, conversation, alone=alone) for task in tasks]
    ok = all(outcome.ok for outcome in outcomes)
    marks = _mark_steps(tasks, conversation)
    if not any(task.step for task in tasks):
        marks = [f"{'✓' if ok else '✗'} [{n}]" for n in sorted(_open_steps(conversation))]
    body = _render_body(tasks, outcomes, conversation) or _NOTHING_ASKED
    footnote = "" if all(outcome.is_introduction for outcome in outcomes) else FOOTNOTE
    goal = " / ".join(" ".join(task.ask.text.split())[:200] for task in tasks)
    return Answer(
        thinking="The previous analysis contains the answer."
        if any(isinstance(task, KnownTask) for task in tasks)
        else "",
        notes="\n".join(marks),
        text="\n\n".join(part for part in (body, footnote) if part),
        followups=next((outcome.followups for outcome in reversed(outcomes) if outcome.followups), ()),
        summary=f"Goal: {goal}\nOutcome: {'answered' if ok else 'not done'}\nFacts: {body[:600]}",
    )


def _render_body(tasks: list[Task], outcomes: list[Outcome], conversation: Conversation) -> str:
    if not any(task.step for task in tasks):
        parts = [_render_usual_plan(conversation), *(outcome.text for outcome in outcomes)]
        return "\n\n".join(part for part in parts if part)
    parts: list[str] = []
    for task, outcome in zip(tasks, outcomes, strict=True):
        mark = f"{'✓' if outcome.ok else '✗'} {task.step}. " if task.step else ""
        text = outcome.text if "\n" not in outcome.text.strip() else f"\n\n{outcome.text.strip()}"
        parts.append(f"{mark}**{task.ask.text}**: {text}" if task.step else outcome.text)
    return "\n\n".join(parts)


def _render_usual_plan(conversation: Conversation) -> str:
    if conversation.plan is None or not _has_planned(conversation):
        return ""
    steps = "\n".join(f"{n}. {label}" for n, label, _ in conversation.plan.steps)
    return f"The plan:\n{steps}"
