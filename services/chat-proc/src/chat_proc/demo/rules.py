"""The rules of the demo: from the conversation to the next reply, without state."""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files

from chat_proc.demo.prompt import Ask, Attachment, Call, Conversation

RUN_PROGRAM, MAKE_PLAN, SEARCH = "exec_tools.execute_code_python", "react.plan", "react.memsearch"
FOOTNOTE = "_Answered by the offline demo: fixed rules, no language model._"
_PROGRAM = re.compile(r"```(?:python3?|py)[ \t]*\n(.*?)```", re.IGNORECASE | re.DOTALL)
_RUN_IT = re.compile(r"\b(?:run|execute)\b", re.IGNORECASE)
_PLAN = re.compile(r"\b(?:plan|steps?)\b", re.IGNORECASE)
_LISTED = re.compile(r"^\s*(?:\d+[.)]|[-*•])\s+(\S.*)$", re.MULTILINE)
_BETWEEN_STEPS = re.compile(r"\s*[;\n]\s*|,?\s+then\s+|,\s+(?:and\s+)?", re.IGNORECASE)
_TABLE = re.compile(
    r"^\W*(?:and|now)\b|\b(?:csv|table|file|data|columns?|rows?|chart|plot|graph|pie|totals?|sums?|averages?|mean|lowest"
    r"|highest|minimum|maximum|best|worst|top|most|least|per|by|daily|monthly|yearly|describe|overview)\b",
    re.IGNORECASE,
)
_RECALL = re.compile(r"\b(?:did (?:i|you)|remember|recall|remind|earlier|what(?:'s| is| was) my)\b", re.IGNORECASE)
_ASKED = re.compile(r"\bdid i (?:\w+ )?(?:ask|want)\b", re.IGNORECASE)
_STATED = re.compile(r"^\W*(?:please )?(?:remember|note)\b|\bmy \w+ (?:is|are|was)\b", re.IGNORECASE)
_HIT = re.compile(r'^\{"turn_id": .*\}$', re.MULTILINE)
_STOP_WORDS = {
    "about", "and", "are", "did", "earlier", "have", "please", "recall", "remember", "remind", "said", "say", "tell",
    "that", "the", "this", "was", "were", "what", "when", "where", "which", "who", "you", "your",
}  # fmt: skip
_MAX_STEPS, _MAX_QUOTES, _MAX_QUOTE_CHARS, _MAX_OUTPUT_CHARS = 10, 3, 300, 4_000
_MAX_NOTICES = 2  # after two refusals in a turn no further call is made


@dataclass(frozen=True, slots=True)
class ToolRequest:
    """Ask for a tool call; `code` is the program of RUN_PROGRAM."""

    notes: str
    tool_id: str
    params: dict[str, object]
    code: str = ""


@dataclass(frozen=True, slots=True)
class Answer:
    """End the turn. `notes` mark steps of the plan."""

    text: str
    notes: str = ""
    followups: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Task:
    """One thing to do: a message or a step of its plan. `code` is its program; `name` identifies it in the turn;
    `earlier` are the messages before it."""

    text: str
    name: str
    earlier: tuple[str, ...]
    code: str = ""
    step: int = 0


@dataclass(frozen=True, slots=True)
class Finding:
    """The outcome of a task."""

    text: str
    ok: bool = True
    followups: tuple[str, ...] = ()


def decide(conversation: Conversation) -> ToolRequest | Answer:
    """The next reply: a plan first if one is asked for, then a call for each task that needs one, then the answer."""
    now = conversation.now
    if now.is_stopped:
        printed = [_read_printed(call) for call in now.calls if call.ok and call.name]
        return Answer("\n\n".join(["Stopped, as you asked.", *printed]))
    tasks = [task for ask in now.asks for task in _read_tasks(ask, conversation)]
    steps = [task.text for task in tasks if task.step]
    if steps and _may_call(MAKE_PLAN, conversation) and not any(call.tool_id == MAKE_PLAN for call in now.calls):
        return ToolRequest("Making the plan.", MAKE_PLAN, {"mode": "new", "steps": steps})
    findings: list[Finding] = []
    for task in tasks:
        found = _work_on(task, conversation)
        if isinstance(found, ToolRequest):
            return replace(found, notes="\n".join([found.notes, *_mark_steps(tasks, findings, conversation)]))
        findings.append(found)
    return _conclude(tasks, findings, conversation)


def _may_call(tool_id: str, conversation: Conversation) -> bool:
    return tool_id in conversation.tools and conversation.rounds_left > 0 and conversation.now.notices < _MAX_NOTICES


def _read_tasks(ask: Ask, conversation: Conversation) -> Iterator[Task]:
    """The steps of the plan that a message asks for, otherwise the message itself."""
    program = _PROGRAM.search(ask.text)
    code, text = (program[1], _PROGRAM.sub("", ask.text, count=1)) if program else ("", ask.text)
    before = [each.text for turn in conversation.turns[:-1] for each in turn.asks]
    earlier = (*before, *(each.text for each in conversation.now.asks if each.number < ask.number))
    steps = _read_steps(text) if _PLAN.search(text) else []
    for step, label in enumerate(steps, 1):
        runs = bool(code and _RUN_IT.search(label))
        yield Task(label, f"{ask.number}_{step}", (*earlier, *steps[: step - 1]), code if runs else "", step)
    if not steps:
        yield Task(text, str(ask.number), earlier, code)


def _read_steps(text: str) -> list[str]:
    """The lines of a list, or what follows a colon; at least two."""
    steps = _LISTED.findall(text) or _BETWEEN_STEPS.split(text.partition(":")[2])
    named = [step.strip(" .,;\n")[:200] for step in steps if step.strip(" .,;\n")][:_MAX_STEPS]
    return named if len(named) > 1 else []


def _work_on(task: Task, conversation: Conversation) -> ToolRequest | Finding:
    table, is_stated = _choose_table(task, conversation), "?" not in task.text and _STATED.search(task.text)
    if task.code:
        return _run_program(task, conversation)
    if _RECALL.search(task.text) and not is_stated:
        return _recall(task, conversation)
    if table is not None:
        return _analyse(task, table, conversation)
    if is_stated:
        return Finding("Noted. Ask me about it later.")
    if task.step:
        return Finding("the demo can't do this; it needs a model.", ok=False)
    return Finding(_load("introduction.md"))


def _choose_table(task: Task, conversation: Conversation) -> Attachment | None:
    """The table that is named, or new in this turn, or the newest if the words fit; None if it is about no table."""
    tables = [file for turn in conversation.turns for file in turn.attachments if file.is_table]
    named = [file for file in tables if file.name in task.text]
    new = [file for file in conversation.now.attachments if file.is_table]
    if named or (new and not task.step):
        return [*new, *named][-1]
    return tables[-1] if tables and _TABLE.search(task.text) else None


def _run_program(task: Task, conversation: Conversation) -> ToolRequest | Finding:
    name = f"program_{task.name}"
    code = re.sub(r"^(</?channel:)", r" \1", task.code, flags=re.MULTILINE | re.IGNORECASE)
    call = _find_call(name, conversation)
    if call is None:
        return _request_run("Running your program.", name, code, {}, conversation)
    printed = _read_printed(call)[:_MAX_OUTPUT_CHARS]
    said = "Your program ran. It printed:" if call.ok else "Your program failed:"
    return Finding(f"{said}\n\n````\n{printed}\n````" if printed else "Your program ran and printed nothing.", call.ok)


def _analyse(task: Task, table: Attachment, conversation: Conversation) -> ToolRequest | Finding:
    stem = re.sub(r"[^a-z0-9]+", "_", table.name.rsplit(".", 1)[0].lower()).strip("_")[:40] or "table"
    stem = stem if task.name == "1" else f"{stem}_{task.name}"
    call = _find_call(f"analyse_{stem}", conversation)
    if call is None:
        questions = [text[:2_000] for text in (*task.earlier[-5:], task.text)]
        source, path = f"os.path.join(WORKDIR, {table.path!r})", f"os.path.join(OUTPUT_DIR, 'outputs/{stem}')"
        code = f"{_load('table.py')}\n\n\nmain({source}, {path}, {questions!r})"
        outputs = {f"outputs/{stem}.png": f"Chart of {table.name}", f"outputs/{stem}.csv": f"Figures of {table.name}"}
        return _request_run(f"Analysing {table.name}.", f"analyse_{stem}", code, outputs, conversation)
    if not call.ok:
        return Finding(f"The program for {table.name} failed:\n\n````\n{_read_printed(call)[-1_000:]}\n````", ok=False)
    text = f"{_read_printed(call)}\n\nFiles: `outputs/{stem}.png`, `outputs/{stem}.csv`."
    return Finding(text, followups=("Which was best?", "And the average, as a pie chart?"))


def _request_run(
    notes: str, name: str, code: str, outputs: dict[str, str], conversation: Conversation
) -> ToolRequest | Finding:
    if not _may_call(RUN_PROGRAM, conversation):
        why = conversation.code_state if RUN_PROGRAM not in conversation.tools else "the turn is at its limit"
        return Finding(
            f"No program can run ({why}), so nothing was computed. `make doctor` checks the server.", ok=False
        )
    contract = [{"filepath": path, "description": text, "visibility": "external"} for path, text in outputs.items()]
    return ToolRequest(notes, RUN_PROGRAM, {"contract": contract, "prog_name": name, "timeout_s": 60}, code.strip())


def _find_call(name: str, conversation: Conversation) -> Call | None:
    return next((call for call in reversed(conversation.now.calls) if call.name == name), None)


def _read_printed(call: Call) -> str:
    """What a program printed; the whole report if it failed. That of an analysis ends with a list of its files."""
    if call.report is None:
        return "It was started, but its outcome is unknown."
    if not call.ok:
        return call.report
    printed = call.report.partition("--- printed ---\n")[2].partition("\n--- errors and warnings ---")[0]
    return printed.partition("\n- fi:")[0] if call.name.startswith("analyse_") else printed


def _recall(task: Task, conversation: Conversation) -> ToolRequest | Finding:
    """Quotes from this conversation, otherwise from the user's other conversations."""
    if _ASKED.search(task.text):
        return Finding(_quote(task.earlier[:1] if "first" in task.text else task.earlier[-1:]))
    quotes = _find_quotes(task.text, task.earlier)
    if quotes:
        return Finding(_quote(quotes))
    searches = [call for call in conversation.now.calls if call.tool_id == SEARCH]
    if not searches and _may_call(SEARCH, conversation):
        params: dict[str, object] = {"query": task.text[:500], "targets": ["user"], "scope": "user"}
        return ToolRequest("Searching earlier conversations.", SEARCH, params)
    hits = [json.loads(line) for call in searches for line in _HIT.findall(call.report or "")]
    return Finding(_quote(_find_quotes(task.text, [str(hit["text"]) for hit in hits])))


def _find_quotes(question: str, texts: Sequence[str]) -> list[str]:
    """The lines that share the most words with the question, questions left out."""
    words = _read_words(question)
    lines = [line.strip() for text in texts for line in re.split(r"\n|(?<=[.!])\s", text) if "?" not in line]
    scored = [(len(words & _read_words(line)), line) for line in lines]
    best = max((score for score, _ in scored), default=0)
    return list(dict.fromkeys(line for score, line in scored if best and score == best))[-_MAX_QUOTES:]


def _read_words(text: str) -> set[str]:
    return {word.removesuffix("s") for word in set(re.findall(r"\w{3,}", text.lower())) - _STOP_WORDS}


def _quote(texts: Sequence[str]) -> str:
    if not texts:
        return "I found nothing about that."
    return "\n".join(["Earlier you said:", *(f"- “{' '.join(text.split())[:_MAX_QUOTE_CHARS]}”" for text in texts)])


def _mark_steps(tasks: Sequence[Task], findings: Sequence[Finding], conversation: Conversation) -> list[str]:
    """A mark for each finished step that has none yet; a failed one states the reason."""
    return [
        f"✓ [{task.step}]" if finding.ok else f"✗ [{task.step}] {finding.text[:200].splitlines()[0]}"
        for task, finding in zip(tasks, findings, strict=False)
        if task.step in conversation.open_steps
    ]


def _conclude(tasks: Sequence[Task], findings: Sequence[Finding], conversation: Conversation) -> Answer:
    parts: list[str] = []
    for task, finding in zip(tasks, findings, strict=True):
        parts.append(f"{'✓' if finding.ok else '✗'} **{task.step}. {task.text}**" if task.step else "")
        parts.append(finding.text)
    unread = [file.name for file in conversation.now.attachments if not file.is_table]
    parts += [f"The demo reads only CSV and TSV files, not {', '.join(unread)}."] if unread else []
    body = "\n\n".join(part for part in parts if part) or "I can't see what you asked. Please ask again in fewer words."
    answered = any(finding.text != _load("introduction.md") for finding in findings)
    return Answer(
        text=f"{body}\n\n{FOOTNOTE}" if answered else body,
        notes="\n".join(_mark_steps(tasks, findings, conversation)),
        followups=next((finding.followups for finding in reversed(findings) if finding.followups), ()),
    )


@cache
def _load(name: str) -> str:
    return files("chat_proc.demo").joinpath(name).read_text(encoding="utf-8").strip()
