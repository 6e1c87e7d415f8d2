"""The system prompt is composed the same way each time, and its text is kept as a golden file."""

import difflib
import json
import os
import re
from pathlib import Path

import pytest
from turn_harness.programs import build_parts

from chat_proc.agent.prompt.system import build_codec, build_system_prompt, load_topic
from chat_proc.attachments.reader import AttachmentReader
from chat_proc.catalog.call_policy import AddressRules
from chat_proc.catalog.tool import ToolSpec
from chat_proc.channels.actions import Action, read_action
from chat_proc.channels.decision_stream import DecisionStream
from chat_proc.sandbox.port import Sandbox, SandboxUnavailable
from chat_proc.skills.reader import load_platform_skills
from chat_proc.tools.code.run_code import RunCodeParams
from chat_proc.tools.memory.memsearch import MemsearchTool
from chat_proc.tools.offered import ToolPorts, offer_tools
from chat_proc.tools.web.offered import WebAccess, build_web_tools
from chat_proc.tools.web.pages import PageReader
from chat_proc.tools.web.resolver import NameResolver
from everturn.execution.messages import Posture
from everturn.memory.encoders.hashed import HashedEmbedder
from everturn.models.port import CodecName
from everturn.skills.model import Skills
from everturn_testing.files.artifacts import MemoryArtifacts
from everturn_testing.files.objects import MemoryObjects
from everturn_testing.in_memory_platform import MemoryPlatform
from everturn_testing.memory.snippets import MemorySnippets
from everturn_testing.turns.conversation_reader import MemoryConversationReader
from everturn_testing.turns.timelines import MemoryTimelines

GOLDEN = Path(__file__).parents[4] / "golden" / "system_prompt.md"
GOLDEN_FANOUT = GOLDEN.with_name("system_prompt_fanout.diff")


class NoSandbox(Sandbox):
    """Never used: only the spec of the tool is read."""

    posture = Posture("none", "", 0, "", "", "", "", "", "")


def specs(*, with_code: bool = True) -> list[ToolSpec]:
    """Of all tools that a worker with a sandbox offers; no tool is called."""
    platform = MemoryPlatform()
    objects = MemoryObjects()
    web = build_web_tools(WebAccess(fetch=True, brave_key="k"), AddressRules(), PageReader(), NameResolver())
    ports = ToolPorts(
        objects,
        AttachmentReader(objects),
        MemoryArtifacts(platform),
        MemoryConversationReader(platform),
        MemoryTimelines(platform),
    )
    memory = [MemsearchTool(MemorySnippets(platform), HashedEmbedder())]
    sandbox = NoSandbox() if with_code else SandboxUnavailable("none here")
    return [*offer_tools(ports, sandbox, build_parts(), more=[*memory, *web]).registry.specs]


def test_the_prompt_is_the_golden_one() -> None:
    """Run with UPDATE_GOLDEN=1 after a wanted change, and read the difference."""
    prompt = build_system_prompt(specs())
    if os.environ.get("UPDATE_GOLDEN"):
        GOLDEN.write_text(prompt, encoding="utf-8")

    assert prompt == GOLDEN.read_text(encoding="utf-8")


def test_the_prompt_for_several_actions_is_the_golden_one() -> None:
    """What differs from the prompt for one action, and nothing else."""
    one, several = build_system_prompt(specs()).splitlines(), build_system_prompt(specs(), 4).splitlines()
    difference = "\n".join(line for line in difflib.unified_diff(one, several, lineterm="", n=0)) + "\n"
    if os.environ.get("UPDATE_GOLDEN"):
        GOLDEN_FANOUT.write_text(difference, encoding="utf-8")

    assert difference == GOLDEN_FANOUT.read_text(encoding="utf-8")


@pytest.mark.parametrize("codec", ["native", "json"])
def test_the_prompt_of_another_codec_is_the_golden_one(codec: CodecName) -> None:
    """What differs from the prompt for channels, and nothing else; then the tools that are declared."""
    built, golden = build_codec(codec, specs()), GOLDEN.with_name(f"system_prompt_{codec}.diff")
    channels, other = build_system_prompt(specs()).splitlines(), built.system_prompt.splitlines()
    difference = "\n".join(line for line in difflib.unified_diff(channels, other, lineterm="", n=0)) + "\n"
    difference += "".join(f"{tool.name} {json.dumps(tool.parameters)}\n" for tool in built.tools)
    if os.environ.get("UPDATE_GOLDEN"):
        golden.write_text(difference, encoding="utf-8")

    assert difference == golden.read_text(encoding="utf-8")


def test_the_prompt_with_skills_is_the_golden_one() -> None:
    """What differs from the prompt without skills, and nothing else."""
    skills, golden = Skills(load_platform_skills()), GOLDEN.with_name("system_prompt_skills.diff")
    without, with_skills = build_system_prompt(specs()), build_system_prompt(specs(), skills=skills.lines)
    compared = difflib.unified_diff(without.splitlines(), with_skills.splitlines(), lineterm="", n=0)
    difference = "\n".join(compared) + "\n"
    if os.environ.get("UPDATE_GOLDEN"):
        golden.write_text(difference, encoding="utf-8")

    assert difference == golden.read_text(encoding="utf-8")


def test_the_same_skills_give_the_same_prompt_in_any_order() -> None:
    skills = load_platform_skills()

    one, other = Skills(skills), Skills(reversed(skills))

    assert build_system_prompt(specs(), skills=one.lines) == build_system_prompt(specs(), skills=other.lines)


@pytest.mark.parametrize("codec", ["channels", "native", "json"])
def test_skills_are_listed_in_one_section_of_every_codec(codec: CodecName) -> None:
    skills = Skills(load_platform_skills())

    prompt = build_codec(codec, specs(), skills=skills.lines).system_prompt

    listed = re.findall(r"^- (sk:[a-z.-]+): .+$", prompt, re.MULTILINE)
    assert listed == ["sk:public.pdf-press", "sk:public.pptx-press", "sk:public.xlsx-press"]
    assert prompt.count("# Skills\n") == 1


def test_skills_are_not_taught_where_they_can_not_be_read_or_used() -> None:
    skills = Skills(load_platform_skills())
    unreadable = [spec for spec in specs() if spec.tool_id != "react.read"]

    assert "# Skills" not in build_system_prompt(unreadable, skills=skills.lines)
    assert "# Skills" not in build_system_prompt(specs())
    without_programs = build_system_prompt(specs(with_code=False), skills=skills.lines)
    assert "sk:public.pdf-press" in without_programs
    assert "WORKDIR" not in without_programs


def headings(prompt: str) -> list[str]:
    return re.findall(r"^# (.+)$", prompt[: prompt.index("[TOOLS]")], re.MULTILINE)


ALWAYS = ["How you reply", "One action in each reply", "Actions", "The working summary", "What you see"]
AT_THE_END = ["Honesty and safety", "Language"]


@pytest.mark.parametrize(
    ("tools", "topics"),
    [
        ([], ["Programs"]),
        (["react.plan"], ["Plans", "Programs"]),
        (["react.memsearch"], ["Memory", "Programs"]),
        (["react.read"], ["Programs", "Sources"]),
        (["react.write"], ["Programs", "Files", "Notes to yourself"]),
        (["react.patch"], ["Programs", "Files"]),
        (["react.read", "react.write", "react.plan"], ["Plans", "Programs", "Files", "Notes to yourself", "Sources"]),
    ],
)
def test_only_topics_that_the_offered_tools_need_are_taught(tools: list[str], topics: list[str]) -> None:
    offered = [spec for spec in specs() if spec.tool_id in tools]

    assert headings(build_system_prompt(offered)) == [*ALWAYS, *topics, *AT_THE_END]


def test_replies_with_programs_are_taught_where_programs_can_run() -> None:
    offered = [spec for spec in specs() if spec.takes_code]

    assert headings(build_system_prompt(offered)) == [
        *ALWAYS[:3], "Programs in replies", *ALWAYS[3:], "Programs", "Files", *AT_THE_END
    ]  # fmt: skip


def test_how_several_actions_go_together_is_taught_only_where_they_may() -> None:
    one, several = build_system_prompt(specs()), build_system_prompt(specs(), 4)

    assert "up to 4 actions" in several
    assert "- react.write (exploitation): " in several
    assert "exploitation" not in one
    assert "One action in each reply" in headings(one)
    assert "One action in each reply" not in headings(several)
    assert "{" + "max_actions}" not in several


@pytest.mark.parametrize("codec", ["native", "json"])
def test_other_codecs_do_not_show_how_actions_go_together(codec: CodecName) -> None:
    assert build_codec(codec, specs(), 4) == build_codec(codec, specs())


def test_the_prompt_explains_the_working_summary() -> None:
    topic = load_topic("summary")

    for line in ("Goal:", "Outcome:", "Key facts:", "Refs:", "Retrieval anchors: phrases:", "entities:"):
        assert line in topic
    assert "A trivial turn" in topic


def test_internal_anchors_are_taught_with_all_their_marks() -> None:
    assert all(f"[{tag}]" in load_topic("anchors") for tag in "PDSAK")


def test_the_offered_tools_are_listed_with_one_line_each() -> None:
    prompt = build_system_prompt(specs())

    listed = re.findall(r"^- ([a-z_]+\.[a-z_]+): .+$", prompt, re.MULTILINE)
    assert listed == [spec.tool_id for spec in specs()]
    assert listed[-1] == "exec_tools.execute_code_python"


def test_without_web_tools_the_web_is_not_taught() -> None:
    prompt = build_system_prompt([spec for spec in specs() if not spec.tool_id.startswith("web_tools.")])

    assert load_topic("web") in build_system_prompt(specs())
    assert "# The web" not in prompt


def test_without_a_sandbox_programs_are_not_taught() -> None:
    prompt = build_system_prompt(specs(with_code=False))

    assert "Programs can't be run in this installation" in prompt
    assert "execute_code_python" not in prompt


def test_without_tools_there_is_still_a_prompt() -> None:
    assert "No tools are offered." in build_system_prompt([])


def test_the_example_action_is_an_action_of_the_protocol() -> None:
    example = re.search(r"^\{.*\}$", load_topic("actions"), re.MULTILINE)
    assert example is not None

    action = read_action(
        example[0].replace('"..."', '"x"', 1).replace('"..."', '"react.read"', 1).replace("{...}", "{}")
    )

    assert isinstance(action, Action)


def test_the_example_of_a_program_is_a_reply_that_works() -> None:
    topic = load_topic("program_channel")
    example = topic[topic.index("<channel:action>") :]
    stream = DecisionStream(sources=())
    stream.feed("<channel:thinking>So.</channel:thinking>\n" + example)
    _, decision = stream.finish()

    assert not decision.fatal_problems
    assert decision.programs[0].text.strip() == "print(sum([120, 80]))"
    assert decision.actions[0].tool_call is not None
    RunCodeParams.model_validate(dict(decision.actions[0].tool_call.params))


def test_an_unknown_topic_is_an_error() -> None:
    with pytest.raises(FileNotFoundError):
        load_topic("nothing")
