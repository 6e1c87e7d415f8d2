from turn_bench.tools import DemoTool

from chat_proc.agent.check import ToolCatalog
from chat_proc.catalog.registry import ToolRegistry


def test_the_registry_of_tools_is_a_catalog() -> None:
    catalog: ToolCatalog = ToolRegistry([DemoTool()])

    assert [spec.tool_id for spec in catalog.specs] == ["demo.echo"]
    assert catalog.spec("demo.echo") is catalog.specs[0]
