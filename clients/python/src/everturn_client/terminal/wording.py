"""The texts for parts of a conversation in a terminal."""

import json
from collections.abc import Sequence
from datetime import UTC, datetime

from everturn.conversations.model import ConversationView
from everturn.events.model import ChatCompaction, ChatPhase
from everturn.events.views import (
    ApprovalView,
    CitationView,
    FileView,
    SignalView,
    StateView,
    StepView,
    TurnView,
)
from everturn.timeline.plans import PlanSnapshot, StepStatus
from everturn_client.answers import Agent, Connection, SearchHit
from everturn_client.terminal.markdown import show_unseen

_MARKS = {StepStatus.PENDING: "□", StepStatus.IN_PROGRESS: "…", StepStatus.DONE: "✓", StepStatus.FAILED: "✗"}
MAX_LINE_CHARS = 200
MAX_PARAMS_CHARS = 16_000
MAX_SHORT_PARAMS_CHARS = 200
"""Limits the parameters that only tell calls apart."""
MAX_NAME_CHARS = 60
"""As long as the titles that the server derives from a first message."""
_NO_TITLE = "(no title)"


def render_step(step: StepView) -> str:
    """One line for the current state of a step, with the step of the plan that it belongs to."""
    title = one_line(f"{step.step_id}: {step.title}" if step.step_id else step.title)
    if step.status == "started":
        return f"▸ {title} …"
    took = "" if step.duration_ms is None else f" ({render_duration(step.duration_ms)})"
    if step.status == "completed":
        return f"✓ {title}{took}"
    why = one_line(step.result_preview or step.error or "")
    return f"✗ {title}{took}: {why}" if why else f"✗ {title}{took}"


def render_plan(plan: PlanSnapshot) -> str:
    """The lines of a plan."""
    steps = [f"  {_MARKS[step.status]} {step.n}. {one_line(step.label)}" for step in plan.steps]
    words = {"complete": "finished", "closed": "closed", "superseded": "replaced by a new plan"}
    status = f" ({words[plan.status]})" if plan.status in words else ""
    return "\n".join([f"Plan{status}:", *steps])


def render_approval(approval: ApprovalView, answer_command: str = "") -> str:
    """The complete question, with the commands that answer it if there is `answer_command`; or its outcome."""
    if approval.state != "pending":
        reason = f": {one_line(approval.reason)}" if approval.reason else ""
        return f"· {render_call(approval)} {approval.state}{reason}"
    params = _show_exactly(json.dumps(approval.params, ensure_ascii=False))
    cut = " (cut)" if approval.cut else ""
    explanation = "".join(f"  {_show_exactly(line)}\n" for line in approval.explanation.split("\n") if line.strip())
    details = "".join(f"  {show_unseen(line)}\n" for line in (approval.details or "").split("\n") if line)
    expires = f"  Expires at {render_time(approval.expires_at)}."
    link = f"  Open: {show_unseen(approval.connect_url)}\n" if approval.connect_url else ""
    what = "Connect an account for" if link else "Allow"
    question = f"? {what} {one_line(approval.tool_id)}? {params}{cut}\n{explanation}{details}{link}{expires}"
    if not answer_command:
        return question
    return f"{question}\n{render_answer_commands(approval, answer_command)}"


def render_call(approval: ApprovalView) -> str:
    """The tool and the beginning of its parameters, to tell the questions of a turn apart."""
    params = show_unseen(json.dumps(approval.params, ensure_ascii=False))
    return f"{one_line(approval.tool_id)} {_cut(params, MAX_SHORT_PARAMS_CHARS)}"


def _show_exactly(text: str) -> str:
    """A person approves exactly what will be sent: no blank is dropped, and invisible characters are shown."""
    return _cut(show_unseen(text), MAX_PARAMS_CHARS)


def render_answer_commands(approval: ApprovalView, answer_command: str) -> str:
    """The commands that answer a question from any terminal. An account is connected at its address."""
    allow, deny = (f"{answer_command} {approval.approval_id} {kind}" for kind in ("approve", "deny"))
    return f"  Deny it:  {deny}" if approval.connect_url else f"  Allow it: {allow}\n  Deny it:  {deny}"


_SIGNAL_STATES = {
    "accepted": "Sent",
    "queued": "Queued for the next answer",
    # It is on the timeline. If a stop followed at once, no model call has seen it, so this does not say "read".
    "applied": "Delivered",
    "promoted": "Sent as the next message",
    "expired": "Arrived too late",
    "rejected": "Could not be delivered",
    "retracted": "Retracted",
}


def render_signal(signal: SignalView) -> str:
    """One line for a signal sent while the agent worked, and its state.

    Empty for a stop and an answer to a question, whose effects are visible, unless they had none.
    """
    text = one_line(signal.text)
    shows_itself = signal.kind in ("cancel", "approve", "deny") or (signal.kind == "steer" and not text)
    if shows_itself and signal.state not in ("expired", "rejected"):
        return ""
    name = f"{signal.event.kind} event" if signal.event else {"followup": "", "steer": "Redirect"}.get(signal.kind)
    state = _SIGNAL_STATES.get(signal.state, "Unknown state (from a newer version of the server)")
    head = " · ".join(filter(None, (signal.kind if name is None else name, state)))
    return f"· {head}: {text}" if text else f"· {head}"


def render_file(file: FileView, download_command: str) -> str:
    """One line for a file, with the command that downloads it."""
    return f"  {one_line(file.filename)} ({render_size(file.size)})   {download_command} {file.artifact_id}"


def render_sources(citations: Sequence[CitationView]) -> str:
    """The sources of an answer, each with its citation number."""
    lines = [f"  [{cited.sid}] {one_line(cited.title)}  {cited.url}" for cited in citations]
    return "\n".join(["Sources:", *lines])


def render_position(ahead: int, *, more: bool) -> str:
    """The queue position of a waiting turn; with `more` there are more than `ahead` before it."""
    if more:
        return f"· waiting, more than {ahead} messages are ahead"
    match ahead:
        case 0:
            return "· waiting, next in line"
        case 1:
            return "· waiting, one message is ahead"
        case _:
            return f"· waiting, {ahead} messages are ahead"


def render_compaction(compaction: ChatCompaction) -> str:
    """One line when summarizing of older parts begins or ends."""
    match compaction.status:
        case "started":
            return f"▸ summarizing earlier messages ({compaction.before_tokens:,} tokens) …"
        case "completed":
            after = "" if compaction.after_tokens is None else f" → {compaction.after_tokens:,}"
            return f"✓ summarized earlier messages ({compaction.before_tokens:,}{after} tokens)"
        case "skipped":
            return "· earlier messages were not summarized"


def render_phase(phase: ChatPhase) -> str:
    """One line for what a turn waits for; empty while the model works."""
    match phase.phase:
        case "selecting_tools":
            return "· choosing tools" + ("" if phase.total_tools is None else f" from {phase.total_tools}")
        case "model_waiting":
            return f"· the model has been silent for {render_duration(phase.waited_ms or 0)}"
        case "model_retrying":
            count = f" (attempt {phase.attempt} of {phase.max_attempts})" if phase.attempt else ""
            return f"· the model did not answer; trying again in {render_duration(phase.retry_in_ms or 0)}{count}"
        case "model_fallback":
            return "· the model did not answer; switching to the fallback model"
        case "model_called" | "model_thought" | "model_replying":
            return ""


_CONTINUE = ' Send "continue" for the rest.'
_CUT_BECAUSE = {
    "length": "it reached the model's length limit",
    "content_filter": "the provider's content filter stopped it",
    "refusal": "the model declined to continue",
    "size_limit": "it reached the size limit",
    "time_limit": "it took longer than this server allows",
    "incomplete": "the model stopped too early",
    "provider_error": "the model stopped answering",
    "server_error": "the server failed",
}


def render_cut(reason: str) -> str:
    """Why an answer ends early; an unknown reason is left out."""
    because = f": {_CUT_BECAUSE[reason]}" if reason in _CUT_BECAUSE else ""
    goes_on = "" if reason in ("content_filter", "refusal") else _CONTINUE
    return f"This answer was cut off{because}.{goes_on}"


def render_end(turn: TurnView) -> str:
    """How a turn ended, in a sentence; empty when it completed normally."""
    if turn.error:
        title = turn.error.title.rstrip(".")
        detail = f". {turn.error.detail}" if turn.error.detail else "."
        return f"The answer failed: {title}{detail}"
    match turn.outcome:
        case "cancelled":
            return "This answer was cancelled."
        case "stopped":
            return "You stopped this answer."
        case "capped":
            return f"The agent reached a limit, so this answer may be incomplete.{_CONTINUE}"
        case "cut":
            return render_cut(turn.cut_reason or "")
        case "unknown":
            return "This answer ended early."
        case "completed" | None:
            return ""


def render_counts(turn: TurnView) -> str:
    """Rounds, time and tokens of an ended turn."""
    parts = [f"{turn.rounds} round{'' if turn.rounds == 1 else 's'}"]
    if turn.elapsed_ms is not None:
        parts.append(render_duration(turn.elapsed_ms))
    if turn.usage:
        parts.append(f"{turn.usage.input_tokens + turn.usage.output_tokens:,} tokens")
        if turn.usage.cost_usd:
            parts.append(f"${turn.usage.cost_usd:.4f}")
    return " · ".join(parts)


def render_time(ts: str) -> str:
    """A moment, in UTC, to the minute."""
    try:
        moment = datetime.fromisoformat(ts)
    except ValueError:
        return one_line(ts)
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M} UTC"


def render_conversation(conversation: ConversationView, state: StateView | None = None) -> str:
    """One line of a list. `state`, if available, provides a name for an untitled conversation."""
    activity = conversation.last_activity_at[:16].replace("T", " ")
    name = render_name(conversation, state)
    return f"{conversation.conversation_id}  {activity}  {conversation.state:8} {name}"


def render_connections(connections: Sequence[Connection]) -> str:
    """A line for each: the place that deletes it, the name of the service, and since when."""
    places = [f"{each.bundle_id}/{each.server}" for each in connections]
    width = max(map(len, places), default=0)
    return "\n".join(
        f"{place:{width}}  {one_line(each.title)}, connected {render_time(each.connected_at)}"
        for place, each in zip(places, connections, strict=True)
    )


def render_agents(agents: Sequence[Agent]) -> str:
    """A line for each: `*` for the default one, id, title and description. Then why its newest version is refused, and
    what does not work in the version in use."""
    names = [one_line(agent.title) for agent in agents]
    id_width, title_width = (max(map(len, texts), default=0) for texts in ([agent.id for agent in agents], names))
    lines: list[str] = []
    for agent, name in zip(agents, names, strict=True):
        mark = "*" if agent.is_default else " "
        about = one_line(agent.description)
        lines.append(f"{mark} {agent.id:{id_width}}  {name:{title_width}}  {about}".rstrip())
        if agent.error:
            state = "Its newest version has an error" if agent.is_ready else "It can't be used"
            lines.append(f"    {state}: {agent.error}")
        lines += [f"    Problem: {problem}" for problem in agent.problems]
    return "\n".join(lines)


def render_starters(starters: Sequence[str]) -> str:
    """Suggested first messages, numbered."""
    lines = [f"  {number}. {one_line(starter)}" for number, starter in enumerate(starters, 1)]
    return "\n".join(["To send one of these messages, type its number:", *lines])


def render_name(conversation: ConversationView, state: StateView | None) -> str:
    """The title; without one, the start of the first message or the names of its files."""
    if title := one_line(conversation.title):
        return title
    if state is None or state.next_cursor is not None:
        return _NO_TITLE
    if not state.turns:
        return "(new)"
    first = state.turns[0]
    files = ", ".join(file.filename for file in first.attachments)
    return one_line(first.text, max_chars=MAX_NAME_CHARS) or one_line(files, max_chars=MAX_NAME_CHARS) or _NO_TITLE


_SAID_BY = {"user": "You", "assistant": "Answer", "attachment": "File"}


def render_hits(hits: Sequence[SearchHit]) -> str:
    """Hits of one conversation: its id and title, and a line per hit with author and date."""
    title = one_line(hits[0].title) or _NO_TITLE
    lines = [f"  {_SAID_BY.get(hit.target, hit.target):6}  {hit.ts[:10]}  {one_line(hit.snippet)}" for hit in hits]
    return "\n".join([f"{hits[0].conversation_id}  {title}", *lines])


def render_size(size: int) -> str:
    """A size in human-readable form."""
    amount = float(size)
    for unit in ("bytes", "KB", "MB"):
        if amount < 1000:
            return f"{size} bytes" if unit == "bytes" else f"{amount:.1f} {unit}"
        amount /= 1000
    return f"{amount:.1f} GB"


def render_duration(duration_ms: int) -> str:
    """A duration in human-readable form."""
    return f"{duration_ms} ms" if duration_ms < 1000 else f"{duration_ms / 1000:.1f} s"


def one_line(text: str, *, max_chars: int = MAX_LINE_CHARS) -> str:
    """The text without line breaks, cut to a line."""
    return _cut(" ".join(text.split()), max_chars)


def _cut(line: str, max_chars: int) -> str:
    return line if len(line) <= max_chars else line[: max_chars - 1] + "…"
