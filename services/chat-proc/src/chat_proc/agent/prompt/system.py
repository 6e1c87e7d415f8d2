"""Composes the system prompt from its topics and the guides of the offered tools."""

from collections.abc import Iterator, Sequence
from importlib.resources import files

from chat_proc.catalog.tool import ToolSpec

_PACKAGE = "chat_proc.agent.prompt"
PLAN_TOOL = "react.plan"
READ_TOOL = "react.read"
MEMSEARCH_TOOL = "react.memsearch"
WEB_TOOLS = "web_tools."


def build_system_prompt(tools: Sequence[ToolSpec], max_actions: int = 1) -> str:
    """Build the same text for the same tools. It contains nothing of a turn: changing data is in ANNOUNCE.

    `max_actions` is the limit per reply: if it is 1, the prompt does not explain how to combine several.
    """
    topics = (
        load_topic(name).replace("{max_actions}", str(max_actions)) for name in _choose_topics(tools, max_actions)
    )
    return "\n\n".join((*topics, _render_tools(tools, max_actions))) + "\n"


def load_topic(name: str) -> str:
    """The text of `<name>.md`. Raises FileNotFoundError."""
    return files(_PACKAGE).joinpath(f"{name}.md").read_text(encoding="utf-8").strip()


def _choose_topics(tools: Sequence[ToolSpec], max_actions: int) -> Iterator[str]:
    """Only the topics that the offered tools and the mode need, in reading order."""
    names = {tool.tool_id for tool in tools}
    yield from ("role", "protocol", "one_action" if max_actions == 1 else "several_actions", "actions", "summary")
    yield "timeline"
    if MEMSEARCH_TOOL in names:
        yield "memory"
    if PLAN_TOOL in names:
        yield "plans"
    yield "code" if any(tool.takes_code for tool in tools) else "no_code"
    if any(tool.strategy == "exploitation" for tool in tools):
        yield "files"
    if any("scratchpad" in tool.params.model_fields for tool in tools):
        yield "anchors"
    if any(name.startswith(WEB_TOOLS) for name in names):
        yield "web"
    if READ_TOOL in names or any(name.startswith(WEB_TOOLS) for name in names):
        yield "citations"
    yield from ("honesty", "language")


def _render_tools(tools: Sequence[ToolSpec], max_actions: int) -> str:
    listed = "\n".join(f"- {_render_name(tool, max_actions)}: {tool.summary}" for tool in tools)
    guides = (f"## {tool.tool_id}\n\n{tool.guide.strip()}" for tool in tools)
    return "\n\n".join((f"[TOOLS]\n{listed or 'No tools are offered.'}", *guides))


def _render_name(tool: ToolSpec, max_actions: int) -> str:
    """A tool's strategy decides what it may be combined with; it is omitted if a reply has one action."""
    return tool.tool_id if max_actions == 1 or tool.strategy == "unknown" else f"{tool.tool_id} ({tool.strategy})"
