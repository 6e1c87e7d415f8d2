"""Calls of the loop's tools as documents write them, `react.read(["so:sources_pool[1-5]"])`, made on the real tools."""

import ast
import re
from collections.abc import Mapping, Sequence
from typing import Any

from chat_proc.attachments.reader import AttachmentReader
from chat_proc.catalog.tool import Tool
from chat_proc.sandbox.port import SandboxUnavailable
from chat_proc.tools.offered import ToolPorts, offer_tools
from everturn.skills.model import NO_SKILLS, Skills
from everturn.timeline.blocks import ToolResultBody
from everturn_testing.files.artifacts import MemoryArtifacts
from everturn_testing.models.scripted_model import Script
from everturn_testing.turns.conversation_reader import MemoryConversationReader
from everturn_testing.turns.timelines import MemoryTimelines
from turn_harness.harness import Bench
from turn_harness.programs import build_parts
from turn_harness.replies import call


def build_bench(*scripts: Script, more: Sequence[Tool] = ()) -> Bench:
    """A bench with the tools that a worker offers, and more."""
    bench = Bench(*scripts)
    offer_all(bench, more)
    return bench


def offer_all(bench: Bench, more: Sequence[Tool], skills: Skills = NO_SKILLS) -> None:
    """Offer what a worker offers, and more."""
    ports = ToolPorts(
        bench.objects,
        AttachmentReader(bench.objects),
        MemoryArtifacts(bench.platform),
        MemoryConversationReader(bench.platform),
        MemoryTimelines(bench.platform),
    )
    offered = offer_tools(ports, SandboxUnavailable("none here"), build_parts(), more=more)
    bench.registry, bench.skills = offered.registry, skills


def read_call(bench: Bench, written: str, names: Mapping[str, object] | None = None) -> tuple[str, dict[str, Any]]:
    """Tool and parameters of a written call; `names` stand for what the document leaves open, such as `fi_path`."""
    expression = ast.parse(re.sub(r"\bfrom=", "from_=", written.strip()), mode="eval").body
    assert isinstance(expression, ast.Call)
    tool_id = ast.unparse(expression.func)
    fields = list(bench.registry.spec(tool_id).params.model_fields)
    params = dict(zip(fields, (_value(arg, names or {}) for arg in expression.args), strict=False))
    # Python has words of its own, such as `from`, which a document uses as a parameter all the same.
    params |= {(word.arg or "").removesuffix("_"): _value(word.value, names or {}) for word in expression.keywords}
    return tool_id, params


async def make_call(bench: Bench, written: str, names: Mapping[str, object] | None = None) -> ToolResultBody:
    """One turn in which the model makes the call and then answers; what the call gave."""
    tool_id, params = read_call(bench, written, names)
    bench.model.add(
        call(tool_id, params), '<channel:action>{"action": "complete", "final_answer": "Done."}</channel:action>'
    )
    await bench.say(written)
    await bench.work()
    results = [block.body for block in bench.blocks if isinstance(block.body, ToolResultBody)]
    return results[-1]


def _value(node: ast.expr, names: Mapping[str, object]) -> object:
    match node:
        case ast.Name(id=name):
            return names[name]
        case ast.List(elts=items):
            return [_value(item, names) for item in items if not _is_dots(item)]
        case ast.Constant(value=str() as text):
            for name, value in names.items():
                text = text.replace(f"<{name}>", str(value))
            return text
        case _:
            return ast.literal_eval(node)


def _is_dots(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is Ellipsis
