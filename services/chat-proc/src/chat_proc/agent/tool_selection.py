"""Tool selection: one structured call chooses, from a short catalog, the tools that a turn offers."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from chat_proc.agent.extra_calls import build_messages, call_for_turn
from chat_proc.agent.kit import TurnKit
from chat_proc.agent.prompt.system import load_topic
from chat_proc.catalog.tool import ToolSpec
from chat_proc.models.roles import SELECTION
from chat_proc.models.structured import StructuredLimits
from chat_proc.turn.leased import LeasedTurn
from everturn.core.tracing import Tracing
from everturn.events.model import ChatPhase
from everturn.models.port import PromptMessage
from everturn.timeline.blocks import Block, TurnHeaderBody

LOOP_TOOLS = "react."
"""The prefix of the tools that the loop itself needs. They are always offered."""
MAX_CHOSEN = 6
MAX_ENTRY_CHARS = 80
"""The limit of one line of the catalog, unless the id alone is longer."""
MIN_SUMMARY_CHARS = 10
"""An id that leaves less room for its summary is listed alone."""
MAX_REQUEST_CHARS = 4_000
"""How much of the person's message the model sees."""
SELECTION_LIMITS = StructuredLimits(limit_s=15.0, max_output_tokens=1_024, max_reply_chars=4_000)
"""The turn waits for the selection. The tokens leave room for models that think before they write."""
SELECTION_SCHEMA: Final[Mapping[str, object]] = {
    "type": "object",
    "properties": {"tools": {"type": "array", "items": {"type": "string"}}},
    "required": ["tools"],
}


async def select_tools(kit: TurnKit, turn: LeasedTurn, tracing: Tracing) -> tuple[str, ...] | None:
    """The ids of the selectable tools that a new turn offers. None means all of them, as when the model fails or
    chooses none.

    The tools of the turn before are kept if they include all that the model chooses: a request with the same tools
    repeats the beginning of earlier ones, which the provider has cached. A cancel or a steer ends the call.
    """
    if not kit.chooses_tools:
        return None
    tools = [spec for spec in kit.catalog.specs if spec.tool_id in kit.selectable]
    turn.emit(ChatPhase(phase="selecting_tools", total_tools=len(tools)))
    request = turn.turn.request
    question = "\n\n".join((request.text, *(event.text for event in request.events)))
    chosen = await call_for_turn(
        turn,
        kit.selection_model or kit.model,
        SELECTION,
        build_selection_messages(question, tools),
        SELECTION_SCHEMA,
        parse_fn=lambda raw: _read_choice(raw, [spec.tool_id for spec in tools]),
        default_value=(),
        limits=SELECTION_LIMITS,
        tracing=tracing,
    )
    before = _find_choice(turn.blocks)
    is_enough = chosen and before and set(chosen) <= set(before) <= kit.selectable
    return before if is_enough else chosen or None


def _read_choice(raw: Mapping[str, Any], selectable: Sequence[str]) -> tuple[str, ...]:
    """At most MAX_CHOSEN of the `selectable` ids, in their order."""
    named = [name.strip() for name in raw["tools"]]
    chosen = [name for name in dict.fromkeys(named) if name in selectable][:MAX_CHOSEN]
    if named and not chosen:
        raise ValueError("none of these ids is in the list of tools")
    return tuple(tool_id for tool_id in selectable if tool_id in chosen)


def _find_choice(blocks: Sequence[Block]) -> tuple[str, ...] | None:
    """The tools that were chosen for the newest of these turns."""
    headers = (block.body for block in reversed(blocks) if isinstance(block.body, TurnHeaderBody))
    newest = next(headers, None)
    return None if newest is None else newest.tools


def build_selection_messages(question: str, tools: Sequence[ToolSpec]) -> tuple[PromptMessage, ...]:
    """The catalog has no guides and no parameters."""
    sections = {"TOOLS": "\n".join(map(render_entry, tools)), "MESSAGE": question.strip()[:MAX_REQUEST_CHARS]}
    return build_messages(load_topic("tool_selection"), sections)


def render_entry(tool: ToolSpec) -> str:
    """The line of a catalog: the id and the beginning of the summary."""
    summary, room = " ".join(tool.summary.split()), MAX_ENTRY_CHARS - len(f"{tool.tool_id}: ")
    if room < MIN_SUMMARY_CHARS:
        return tool.tool_id
    if len(summary) > room:
        summary = f"{summary[: room - 1].rstrip()}…"
    return f"{tool.tool_id}: {summary}"
