"""The registry finds tools, checks arguments, and explains errors to the model."""

import pytest

from chat_proc.catalog.tool import ToolRegistry
from chat_proc.tools.context.read import ReadTool
from chat_proc.tools.plan import PlanTool
from chat_proc.tools.workspace.write import WriteParams, WriteTool
from everturn.core.errors import Invalid
from everturn.files.objects import Objects
from everturn_testing.timeline import TimelineBuilder


@pytest.fixture
def registry(objects: Objects, read_tool: ReadTool) -> ToolRegistry:
    return ToolRegistry([read_tool, WriteTool(objects), PlanTool()])


def test_tools_keep_the_order_they_were_given_in(registry: ToolRegistry) -> None:
    assert [spec.tool_id for spec in registry.specs] == ["react.read", "react.write", "react.plan"]


def test_fitting_arguments_come_back_typed(registry: ToolRegistry) -> None:
    params = registry.check_params("react.write", {"path": "files/a.md", "content": "x"})

    assert params == WriteParams(path="files/a.md", content="x")


@pytest.mark.parametrize(
    ("tool_id", "hint"),
    [("react.raed", "react.read"), ("tools.write", "react.write"), ("plan", "react.plan")],
)
def test_an_unknown_tool_is_answered_with_the_likely_one(registry: ToolRegistry, tool_id: str, hint: str) -> None:
    with pytest.raises(Invalid, match=f"Did you mean {hint}") as refused:
        registry.spec(tool_id)

    assert "react.read, react.write, react.plan" in refused.value.detail


def test_a_tool_like_no_other_is_answered_with_the_list(registry: ToolRegistry) -> None:
    with pytest.raises(Invalid) as refused:
        registry.spec("x" * 500 + "\n")

    assert "Did you mean" not in refused.value.detail
    assert len(refused.value.detail) < 250


def test_a_complaint_names_each_field_and_the_right_order(registry: ToolRegistry) -> None:
    with pytest.raises(Invalid) as refused:
        registry.check_params("react.write", {"chanel": "canvas", "kind": "paper"})

    assert "path: Field required" in refused.value.detail
    assert "chanel: Extra inputs are not permitted" in refused.value.detail
    assert "kind: Input should be 'display' or 'file'" in refused.value.detail
    assert refused.value.detail.endswith("in this order: path, channel, content, kind, scratchpad.")


def test_a_complaint_is_bounded(registry: ToolRegistry) -> None:
    with pytest.raises(Invalid) as refused:
        registry.check_params("react.write", {"x" * 1000 + str(number): 1 for number in range(100)})

    assert "more" in refused.value.detail
    assert len(refused.value.detail) < 1500


def test_two_tools_of_one_name_are_refused() -> None:
    with pytest.raises(Invalid):
        ToolRegistry([PlanTool(), PlanTool()])


async def test_a_call_reaches_its_tool(registry: ToolRegistry, call_tool) -> None:
    timeline = TimelineBuilder()
    timeline.start_turn("turn_1", "Go")

    class Caller:
        spec = registry.spec("react.plan")

        async def run(self, call):
            return await registry.run("react.plan", call)

    outcome = await call_tool(Caller(), timeline, {"mode": "new", "steps": ["a"]})

    assert outcome.status == "ok"
