"""`react.hide`: replaces blocks near the end of the prompt that the model no longer needs with a short text."""

import json
from collections.abc import Container, Sequence
from dataclasses import dataclass
from importlib.resources import files

from pydantic import BaseModel, ConfigDict, Field

from chat_proc.catalog.tool import Record, ToolCall, ToolContext, ToolOutcome, ToolSpec
from chat_proc.timeline.present import latest_plans
from chat_proc.timeline.view import TimelineView, VisibleBlock, first_editable_seq
from chat_proc.tools.context.resolve import Named, read_name
from chat_proc.tools.context.seen import shown_texts
from everturn.core import refs
from everturn.core.errors import Invalid
from everturn.core.refs import round_ref
from everturn.models.tokens import CharsPerToken
from everturn.timeline.blocks import Block, BlockType, HideBody
from everturn.timeline.forms import Form
from everturn.timeline.inert import escape_name
from everturn.turns.model import Effect

MAX_PATHS = 20
MAX_REPLACEMENT_CHARS = 2_000
DEFAULT_REPLACEMENT = "Hidden, because it is no longer needed."
_NEVER_HIDDEN = frozenset({BlockType.TURN_HEADER, BlockType.RANGE_SUMMARY, BlockType.SYSTEM_MESSAGE})
_OF_CALLS = (BlockType.TOOL_CODE, BlockType.TOOL_RESULT, BlockType.PLAN, BlockType.PLAN_ACK)
_TOO_OLD = "it is in the cached part of the prompt, and changing that would cost more than it saves"


def find_refs(named: Named, blocks: Sequence[Block]) -> set[str]:
    """The refs of the blocks that show only this."""
    reads = {block.ref for block in blocks if {text.ref for text in shown_texts(block)} == {named.shown}}
    if named.conversation_id is not None:
        return reads
    match named.ref:
        case refs.CompletionRef(turn=turn, n=None):
            answers = [block.ref for block in blocks if block.turn_id == turn and block.type is BlockType.COMPLETION]
            return reads | set(answers[-1:])
        case refs.PlanLatestRef(plan=plan):
            return reads | {each.snapshot_ref for each in latest_plans(blocks) if each.plan_id == plan}
        case _:
            return reads | {str(named.ref)}


def find_shared(named: Named, blocks: Sequence[Block], visible: Container[str]) -> str | None:
    """The ref of the newest visible result that shows this together with other content."""
    for block in reversed(blocks):
        if block.ref in visible and any(text.ref == named.shown for text in shown_texts(block)):
            return block.ref
    return None


class HideParams(BaseModel):
    """What to hide, and the text to show in its place."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    paths: list[str] = Field(min_length=1, max_length=MAX_PATHS)
    replacement: str = Field(default="", max_length=MAX_REPLACEMENT_CHARS)


@dataclass(frozen=True, slots=True)
class _Answer:
    """The result of one path; `body` is set if something is hidden."""

    status: str
    body: HideBody | None = None
    blocks: int = 0
    tokens: int = 0


class HideTool:
    """Pure except for the records that it returns. The blocks stay on the timeline, and can be read by their refs."""

    def __init__(self) -> None:
        self.spec = ToolSpec(
            tool_id="react.hide",
            summary="Replace recent blocks that you no longer need with a short text.",
            guide=files("chat_proc.tools.context").joinpath("hide.md").read_text(encoding="utf-8"),
            params=HideParams,
            effect=Effect.IDEMPOTENT,
            strategy="neutral",
        )

    async def run(self, call: ToolCall) -> ToolOutcome:
        params, context = HideParams.model_validate(call.params), call.context
        hiding = _Hiding(context, params.replacement.strip())
        answers = [hiding.answer(path) for path in dict.fromkeys(params.paths)]
        bodies = [answer.body for answer in answers if answer.body is not None]
        records = tuple(
            Record(BlockType.HIDE, round_ref(context.turn_id, context.round, f"hide.{call.call_id}.{n}"), body)
            for n, body in enumerate(bodies)
        )
        blocks, tokens = sum(answer.blocks for answer in answers), sum(answer.tokens for answer in answers)
        total = f"hidden in total: {blocks} blocks, about {tokens} tokens"
        text = "\n".join([*(answer.status for answer in answers), total])
        return ToolOutcome("ok" if bodies else "error", text, records=records)


class _Hiding:
    """One call, over the view that the model had when it decided."""

    def __init__(self, context: ToolContext, replacement: str) -> None:
        self._context = context
        self._replacement = replacement or DEFAULT_REPLACEMENT
        self._blocks = _blocks_before_decision(context)
        view = TimelineView(self._blocks)
        self._items = view.items
        self._first_seq = first_editable_seq(view.items, view.turn_at)
        self._done: set[str] = set()

    def answer(self, path: str) -> _Answer:
        try:
            named = read_name(path, self._context.conversation_id, self._context.turn_id)
        except Invalid as invalid:
            return _Answer(f"{escape_name(path)}: not_found ({invalid.detail})")
        refs = find_refs(named, self._blocks) - self._done
        items = [item for item in self._items if item.block.ref in refs]
        if not any(_is_hidable(item) for item in items):
            return _Answer(f"{escape_name(named.shown)}: not_found ({self._why_not(named, items)})")
        old = {item.block.ref for item in items if item.block.seq < self._first_seq}
        recent = [item for item in items if item.block.ref not in old]
        if not recent:
            return _Answer(f"{escape_name(named.shown)}: too_old ({_TOO_OLD})")
        return self._hide(named, recent)

    def _hide(self, named: Named, items: Sequence[VisibleBlock]) -> _Answer:
        refs = tuple(dict.fromkeys(item.block.ref for item in items))
        self._done.update(refs)
        replacement = _with_hint(self._replacement, refs[0])
        body = HideBody(refs=refs, through_seq=items[-1].block.seq, replacement=replacement)
        hidden = [item for item in items if item.form is not Form.REPLACED]
        tokens = CharsPerToken().tokens_for(sum(len(item.text) for item in hidden))
        count = f"{len(hidden)} block{'s' if len(hidden) != 1 else ''}"
        status = f"{escape_name(named.shown)}: ok, {count} hidden, about {tokens} tokens"
        return _Answer(status, body, len(hidden), tokens)

    def _why_not(self, named: Named, items: Sequence[VisibleBlock]) -> str:
        if named.conversation_id is not None:
            return "it belongs to another conversation"
        if any(item.form is Form.REPLACED for item in items):
            return "it is already hidden"
        if items:
            return "such blocks can't be hidden"
        shared = find_shared(named, self._blocks, {item.block.ref for item in self._items})
        return (
            f"it is shown together with others in {shared}; hide that instead"
            if shared
            else "no visible block has this ref"
        )


def _blocks_before_decision(context: ToolContext) -> list[Block]:
    """The blocks in the request that led to this call: without the round's own decision and its other calls."""
    here = context.turn_id, context.round
    return [block for block in context.blocks if (block.turn_id, block.round) != here or not _follows_decision(block)]


def _follows_decision(block: Block) -> bool:
    """Whether the block is part of its round's decision or was written by one of its calls."""
    return block.type.traits.is_decision or block.type in _OF_CALLS


def _is_hidable(item: VisibleBlock) -> bool:
    return item.form is not Form.REPLACED and item.block.type not in _NEVER_HIDDEN


def _with_hint(replacement: str, ref: str) -> str:
    """The replacement with a hint how to read the original, unless it contains one."""
    if ref in replacement or "react.read" in replacement:
        return replacement
    return f"{replacement} To read it: react.read paths={json.dumps([ref], ensure_ascii=False)}"
