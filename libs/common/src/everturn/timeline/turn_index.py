"""Builds the index of a turn from its blocks, and renders it as text for a model. It is never stored.

Every file of a turn is in one of its blocks, so the blocks are all that is needed.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from everturn.core.api_model import ApiModel
from everturn.core.refs import sources_ref, turn_index_ref
from everturn.files.model import Artifact
from everturn.timeline.blocks import (
    AttachmentBody,
    Block,
    CheckoutBody,
    CompletionBody,
    DurableStepBody,
    EventBody,
    ExitBody,
    IndexSection,
    PlanBody,
    PlanHistoryBody,
    SignalBody,
    ToolCallBody,
    ToolResultBody,
)

MAX_HINT_CHARS = 220
MAX_SIDS = 200


class IndexEntry(ApiModel):
    """A text. `kind` is its block type, `hint` its first words."""

    ref: str
    kind: str
    """The type of its block."""
    hint: str = ""
    """The beginning of the text."""


class IndexedCall(ApiModel):
    """A tool call. `result_ref` and `status` are null while it has no result, `call_ref` if the call is lost."""

    tool_id: str
    status: str | None
    """How the call ended; null while it has no result."""
    call_ref: str | None
    """The reference of the tool call in the timeline."""
    result_ref: str | None
    """The reference of the result."""
    hint: str = ""
    """The beginnings of its parameters and of its result."""


class IndexedFile(ApiModel):
    """A file. `source` is the tool or the block type that brought it, `size` in bytes."""

    ref: str
    kind: str
    """Where the file belongs: to the attachments, the workspace or the outputs."""
    mime: str
    size: int
    """Its size in bytes."""
    source: str
    """The tool, or the type of the block, that brought the file."""
    visibility: str
    """Whether the person sees the file, or only the agent."""
    hint: str = ""
    """The beginning of its description."""


class TurnIndexView(ApiModel):
    """One turn. Times are ISO 8601 in UTC; `outcome` is null while it runs. `more` says whether blocks are left out."""

    turn_id: str
    ref: str
    started_at: str | None
    """When it started, in ISO 8601 and UTC."""
    ended_at: str | None
    """When it ended, in ISO 8601 and UTC."""
    outcome: str | None
    """How the turn ended, `failed` included; null while it is open."""
    summaries: tuple[IndexEntry, ...] = ()
    """Summaries of older parts."""
    messages: tuple[IndexEntry, ...] = ()
    """The messages of the turn."""
    events: tuple[IndexEntry, ...] = ()
    """External events, as the turn saw them."""
    notes: tuple[IndexEntry, ...] = ()
    """Notes that the agent made."""
    tools: tuple[IndexedCall, ...] = ()
    """The tool calls of the turn."""
    artifacts: tuple[IndexedFile, ...] = ()
    """The files of the turn."""
    sources: tuple[str, ...] = ()
    """Refs of the sources that its answers cite."""
    more: bool = False
    """Whether there is more than is listed."""


def build_turn_index(turn_id: str, blocks: Iterable[Block], *, more: bool = False) -> TurnIndexView:
    """The index of the turn with these blocks; `more` means that later blocks are left out."""
    parts = _Parts()
    for block in blocks:
        parts.take(block)
    return TurnIndexView(
        turn_id=turn_id,
        ref=turn_index_ref(turn_id),
        started_at=parts.started_at,
        ended_at=parts.ended_at,
        outcome=parts.outcome,
        summaries=_last_of_each(parts.entries[IndexSection.SUMMARIES]),
        messages=_last_of_each(parts.entries[IndexSection.MESSAGES]),
        events=_last_of_each(parts.entries[IndexSection.EVENTS]),
        notes=_last_of_each(parts.entries[IndexSection.NOTES]),
        tools=tuple(parts.calls.values()),
        artifacts=tuple(parts.files.values()),
        sources=parts.source_refs(),
        more=more,
    )


def render_turn_index(index: TurnIndexView) -> str:
    """The index as lines of text, without empty sections."""
    ended = f"{index.outcome} at {index.ended_at}" if index.outcome else "not ended"
    sections = [
        (f"index of {index.turn_id}", [f"path: {index.ref}", f"started: {index.started_at}; {ended}"]),
        ("summaries", list(map(_entry_line, index.summaries))),
        ("messages", list(map(_entry_line, index.messages))),
        ("events", list(map(_entry_line, index.events))),
        ("notes", list(map(_entry_line, index.notes))),
        ("tools", list(map(_call_line, index.tools))),
        ("artifacts", list(map(_file_line, index.artifacts))),
        ("sources", [f"- {ref}" for ref in index.sources]),
    ]
    text = "\n\n".join("\n".join((f"{title}:", *lines)) for title, lines in sections if lines)
    return text + ("\n\n(the turn is larger than its index may be: later blocks are left out)" if index.more else "")


@dataclass(slots=True)
class _Parts:
    """The parts of the index so far, in the order of the blocks."""

    started_at: str | None = None
    ended_at: str | None = None
    outcome: str | None = None
    entries: dict[IndexSection, list[IndexEntry]] = field(
        default_factory=lambda: {section: [] for section in IndexSection}
    )
    calls: dict[str, IndexedCall] = field(default_factory=dict[str, IndexedCall])
    files: dict[str, IndexedFile] = field(default_factory=dict[str, IndexedFile])
    sids: set[int] = field(default_factory=set[int])

    def take(self, block: Block) -> None:
        self.started_at = self.started_at or block.ts
        match block.body:
            case ToolCallBody() as body:
                self._take_call(block, body)
            case ToolResultBody() as body:
                self._take_result(block, body)
            case AttachmentBody(artifact=artifact):
                self._take_files(block.type.value, (artifact,))
            case SignalBody(attachments=files) | EventBody(attachments=files):
                self._take_files(block.type.value, files)
            case CheckoutBody(artifacts=files) | DurableStepBody(artifacts=files):
                self._take_files(block.type.value, files)
            case CompletionBody(sources_used=sids):
                self.sids.update(sids)
            case ExitBody(outcome=outcome):
                self.ended_at, self.outcome = block.ts, outcome.value if outcome else "failed"
            case _:
                """Only named, below."""
        if (section := block.type.traits.section) is not None:
            hint = build_hint(_text_of(block))
            self.entries[section].append(IndexEntry(ref=block.ref, kind=block.type.value, hint=hint))

    def source_refs(self) -> tuple[str, ...]:
        sids = sorted(sid for sid in self.sids if sid > 0)
        pages = (sids[start : start + MAX_SIDS] for start in range(0, len(sids), MAX_SIDS))
        return tuple(sources_ref(page) for page in pages)

    def _take_call(self, block: Block, body: ToolCallBody) -> None:
        params = ", ".join(f"{name}={build_hint(str(value), 60)}" for name, value in body.params.items())
        self.calls[block.call_id or block.ref] = IndexedCall(
            tool_id=body.tool_id,
            status=None,
            call_ref=block.ref,
            result_ref=None,
            hint=build_hint(params, MAX_HINT_CHARS // 2),
        )

    def _take_result(self, block: Block, body: ToolResultBody) -> None:
        called = self.calls.get(block.call_id or "")
        hints = [called.hint if called else "", build_hint(body.text, MAX_HINT_CHARS // 2 - 5)]
        self.calls[block.call_id or block.ref] = IndexedCall(
            tool_id=body.tool_id,
            status=body.status,
            call_ref=called.call_ref if called else None,
            result_ref=block.ref,
            hint=" -> ".join(hint for hint in hints if hint),
        )
        self._take_files(body.tool_id, body.artifacts)

    def _take_files(self, source: str, artifacts: Sequence[Artifact]) -> None:
        for artifact in artifacts:
            self.files[artifact.ref] = IndexedFile(
                ref=artifact.ref,
                kind=artifact.kind.value,
                mime=artifact.mime,
                size=artifact.size,
                source=source,
                visibility=artifact.visibility,
                hint=build_hint(artifact.description),
            )


def build_hint(text: str, max_chars: int = MAX_HINT_CHARS) -> str:
    """The beginning of a text in one line of at most `max_chars` characters."""
    line = " ".join(text[: 4 * max_chars].split())
    return line if len(line) <= max_chars else line[: max_chars - 1] + "…"


def _text_of(block: Block) -> str:
    match block.body:
        case PlanBody(plan=plan):
            return f"{plan.plan_id} {plan.status.value}: {'; '.join(step.label for step in plan.steps)}"
        case PlanHistoryBody(plans=plans):
            return ", ".join(plan.plan_id for plan in plans)
        case EventBody(kind=kind, text=text):
            return f"{kind}: {text}"
        case _:
            return str(getattr(block.body, "text", ""))


def _last_of_each(entries: Sequence[IndexEntry]) -> tuple[IndexEntry, ...]:
    """A ref names its newest block, so an older one with the same ref can't be read and isn't listed."""
    return tuple({entry.ref: entry for entry in entries}.values())


def _entry_line(entry: IndexEntry) -> str:
    return f"- {entry.ref} ({entry.kind})" + (f": {entry.hint}" if entry.hint else "")


def _call_line(call: IndexedCall) -> str:
    named = (("call", call.call_ref), ("result", call.result_ref))
    line = f"- {call.tool_id} {call.status or 'no result'}: " + "; ".join(f"{name}={ref}" for name, ref in named if ref)
    return line + (f"; {call.hint}" if call.hint else "")


def _file_line(file: IndexedFile) -> str:
    line = f"- {file.ref} ({file.kind}, {file.mime}, {file.size} bytes, from {file.source}, {file.visibility})"
    return line + (f": {file.hint}" if file.hint else "")
