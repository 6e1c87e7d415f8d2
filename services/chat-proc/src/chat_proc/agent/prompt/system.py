"""Composes system prompts: the topics of its codec, and the guides of the offered tools."""

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Final

from chat_proc.catalog.tool import ToolSpec
from chat_proc.channels.codec import Codec, build_native_names, build_parameters, declare_tools
from chat_proc.workspace.local import PULL_TOOL
from everturn.models.port import CodecName
from everturn.skills.model import SCHEME, SKILLS_FOLDER, DescribedSkill, render_catalog
from everturn.timeline.inert import make_inert

_PACKAGE = "chat_proc.agent.prompt"
PLAN_TOOL = "react.plan"
READ_TOOL = "react.read"
MEMSEARCH_TOOL = "react.memsearch"
WEB_TOOLS = "web_tools."

_MARKS_PLACE: Final[Mapping[CodecName, str]] = {
    "channels": "in the `notes` of your next action",
    "native": "in the text next to your next calls; marks in the final answer are not read, so if no call is left,\n"
    "close the plan with `react.plan` before you answer",
    "json": "in the `reasoning` of your next reply",
}
_ANSWER_FORM: Final[Mapping[CodecName, str]] = {
    "channels": "with one action `complete`",
    "native": "as plain text without a call",
    "json": "with the action `final_answer`",
}


def build_codec(
    name: CodecName,
    tools: Sequence[ToolSpec],
    max_actions: int = 1,
    instructions: str = "",
    skills: Sequence[DescribedSkill] = (),
) -> Codec:
    """The codec for these tools and skills. `max_actions` is the limit for a reply in channels; `instructions` are
    those of the operator and of the bundle's author. Raises BadConfig."""
    prompt = build_system_prompt(tools, max_actions, instructions, skills, codec=name)
    closing = load_topic("closing").replace("{answer_form}", _ANSWER_FORM[name])
    declared = declare_tools(tools) if name == "native" else ()
    return Codec(name, prompt, closing, declared, build_native_names([tool.tool_id for tool in tools]))


def build_system_prompt(
    tools: Sequence[ToolSpec],
    max_actions: int = 1,
    instructions: str = "",
    skills: Sequence[DescribedSkill] = (),
    *,
    codec: CodecName = "channels",
) -> str:
    """Build the same text for the same tools and skills. It contains nothing of a turn: changing data is in ANNOUNCE.

    `max_actions` is the limit per reply: if it is 1, the prompt does not explain how to combine several. Tools that are
    declared to the model are not described again.
    """
    topics = [
        load_topic(name).replace("{max_actions}", str(max_actions)).replace("{marks_place}", _MARKS_PLACE[codec])
        for name in _choose_topics(tools, max_actions, codec)
    ]
    role = add_instructions(topics.pop(0), instructions)
    shows_strategies = codec == "channels" and max_actions > 1
    described = () if codec == "native" else (_render_tools(tools, shows_strategies=shows_strategies),)
    return "\n\n".join((role, *topics, *_render_skills(tools, skills), *described)) + "\n"


def add_instructions(prompt: str, instructions: str) -> str:
    """The prompt with the instructions of the operator and of the bundle's author, if there are any."""
    return f"{prompt}\n\n{load_topic('instructions')}\n\n{instructions}" if instructions else prompt


@cache
def load_topic(name: str) -> str:
    """The text of `<name>.md`. Raises FileNotFoundError."""
    return files(_PACKAGE).joinpath(f"{name}.md").read_text(encoding="utf-8").strip()


def _choose_topics(tools: Sequence[ToolSpec], max_actions: int, codec: CodecName) -> Iterator[str]:
    """Only the topics that the codec, the offered tools and the mode need, in reading order."""
    names = {tool.tool_id for tool in tools}
    takes_code = any(tool.takes_code for tool in tools)
    yield "role"
    if codec == "channels":
        yield from ("protocol", "one_action" if max_actions == 1 else "several_actions", "actions")
        if takes_code:
            yield "program_channel"
        yield "summary"
    else:
        yield codec
    yield "timeline"
    if MEMSEARCH_TOOL in names:
        yield "memory"
    if PLAN_TOOL in names:
        yield "plans"
    yield "code" if takes_code else "no_code"
    if any(tool.strategy == "exploitation" for tool in tools):
        yield "files"
    if any("scratchpad" in tool.params.model_fields for tool in tools):
        yield "anchors"
    if any(name.startswith(WEB_TOOLS) for name in names):
        yield "web"
    if READ_TOOL in names or any(name.startswith(WEB_TOOLS) for name in names):
        yield "citations"
    yield from ("honesty", "language")


def _render_skills(tools: Sequence[ToolSpec], skills: Sequence[DescribedSkill]) -> Iterator[str]:
    """Nothing without skills, or without the tool that reads them."""
    names = {tool.tool_id for tool in tools}
    if not skills or READ_TOOL not in names:
        return
    first = skills[0].id
    topics = ["skills"]
    if PULL_TOOL in names and any(tool.takes_code for tool in tools):
        topics.append("skill_files")
    text = "\n\n".join(map(load_topic, topics)).replace("{skill}", f"{SCHEME}{first}")
    yield text.replace("{folder}", f"{SKILLS_FOLDER}/{first}").replace("{skills}", render_catalog(skills))


def _render_tools(tools: Sequence[ToolSpec], *, shows_strategies: bool) -> str:
    listed = "\n".join(f"- {_render_name(tool, shows_strategies=shows_strategies)}: {tool.summary}" for tool in tools)
    guides = (f"## {tool.tool_id}\n\n{tool.guide.strip()}{_render_schema(tool)}" for tool in tools)
    return "\n\n".join((f"[TOOLS]\n{listed or 'No tools are offered.'}", *guides))


def _render_schema(tool: ToolSpec) -> str:
    if not tool.shows_schema:
        return ""
    return make_inert(f"\n\nParameters: {json.dumps(build_parameters(tool), ensure_ascii=False)}")


def _render_name(tool: ToolSpec, *, shows_strategies: bool) -> str:
    """A tool's strategy decides what it may be combined with, where a reply may have several actions."""
    return f"{tool.tool_id} ({tool.strategy})" if shows_strategies and tool.strategy != "unknown" else tool.tool_id
