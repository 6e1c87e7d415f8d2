"""Composes the system prompt from its topics and from what the offered tools say of themselves."""

from collections.abc import Sequence
from importlib.resources import files

from everturn.ports.tool import ToolSpec

_PACKAGE = "chat_proc.agent.prompt"
_PLAN_TOOL = "react.plan"


def build_system_prompt(tools: Sequence[ToolSpec]) -> str:
    """The same text for the same tools. It holds nothing of a turn: what changes stands in ANNOUNCE."""
    return "\n\n".join((*map(load_topic, _choose_topics(tools)), _render_tools(tools))) + "\n"


def load_topic(name: str) -> str:
    """The text of `<name>.md`. Raises FileNotFoundError."""
    return files(_PACKAGE).joinpath(f"{name}.md").read_text(encoding="utf-8").strip()


def _choose_topics(tools: Sequence[ToolSpec]) -> list[str]:
    topics = ["role", "protocol", "actions", "timeline"]
    if any(tool.tool_id == _PLAN_TOOL for tool in tools):
        topics.append("plans")
    topics.append("code" if any(tool.takes_code for tool in tools) else "no_code")
    return [*topics, "files", "citations", "honesty", "language"]


def _render_tools(tools: Sequence[ToolSpec]) -> str:
    listed = "\n".join(f"- {tool.tool_id}: {tool.summary}" for tool in tools) or "No tools are offered."
    guides = (f"## {tool.tool_id}\n\n{tool.guide.strip()}" for tool in tools)
    return "\n\n".join((f"[TOOLS]\n{listed}", *guides))
