"""Tool selection: one structured call chooses, from a short catalog, the tools that a turn offers."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from chat_proc.agent.prompt.system import load_topic
from chat_proc.catalog.tool import ToolSpec
from chat_proc.models.calls import CallTracker
from chat_proc.models.structured import StructuredLimits, structured_call
from everturn.models.port import LanguageModel, PromptMessage, TextPart

LOOP_TOOLS = "react."
"""The prefix of the tools that the loop itself needs. They are always offered."""
MAX_CHOSEN = 6
MAX_ENTRY_CHARS = 80
"""The limit of one line of the catalog, unless the id alone is longer."""
MIN_SUMMARY_CHARS = 10
"""An id that leaves less room for its summary is listed alone."""
MAX_QUESTION_CHARS = 4_000
"""How much of the question the model sees."""
SELECTION_LIMITS = StructuredLimits(limit_s=15.0, max_output_tokens=1_024, max_reply_chars=4_000)
"""The turn waits for the selection. The tokens leave room for models that think before they write."""
SELECTION_SCHEMA: Final[Mapping[str, object]] = {
    "type": "object",
    "properties": {"tools": {"type": "array", "items": {"type": "string"}}},
    "required": ["tools"],
}


async def choose_tools(
    model: LanguageModel,
    question: str,
    tools: Sequence[ToolSpec],
    *,
    tracker: CallTracker,
    limits: StructuredLimits = SELECTION_LIMITS,
) -> tuple[str, ...] | None:
    """The ids of at most MAX_CHOSEN of `tools` that the question may need, in the order of `tools`.

    None, which means all of them, if the model fails or chooses none. The loop's own tools are never chosen from.
    """
    selectable = [tool for tool in tools if not tool.tool_id.startswith(LOOP_TOOLS)]
    known = {tool.tool_id for tool in selectable}

    def read_choice(raw: Mapping[str, Any]) -> tuple[str, ...]:
        named = [name.strip() for name in raw["tools"]]
        chosen = [name for name in dict.fromkeys(named) if name in known][:MAX_CHOSEN]
        if named and not chosen:
            raise ValueError("none of these ids is in the list of tools")
        return tuple(tool.tool_id for tool in selectable if tool.tool_id in chosen)

    result = await structured_call(
        model,
        build_selection_messages(question, selectable),
        SELECTION_SCHEMA,
        parse_fn=read_choice,
        default_value=(),
        limits=limits,
        tracker=tracker,
    )
    return result.value or None


def build_selection_messages(question: str, tools: Sequence[ToolSpec]) -> tuple[PromptMessage, ...]:
    """The catalog has no guides and no parameters."""
    catalog = "\n".join(map(_render_entry, tools))
    user = f"[TOOLS]\n{catalog}\n\n[MESSAGE]\n{question.strip()[:MAX_QUESTION_CHARS]}"
    return (
        PromptMessage("system", (TextPart(load_topic("tool_selection")),)),
        PromptMessage("user", (TextPart(user),)),
    )


def _render_entry(tool: ToolSpec) -> str:
    summary, room = " ".join(tool.summary.split()), MAX_ENTRY_CHARS - len(f"{tool.tool_id}: ")
    if room < MIN_SUMMARY_CHARS:
        return tool.tool_id
    if len(summary) > room:
        summary = f"{summary[: room - 1].rstrip()}…"
    return f"{tool.tool_id}: {summary}"
