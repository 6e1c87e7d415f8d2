"""The names a program calls tools by."""

import pytest

from executor.rpc import build_stubs


async def echo(tool_id: str, arguments: dict[str, object]) -> object:
    return tool_id, arguments


async def test_a_tool_is_called_by_alias_and_name_with_keyword_arguments():
    stubs = build_stubs(["web_tools.web_search", "web_tools.web_fetch", "ctx_tools.fetch_ctx"], echo)

    assert sorted(stubs) == ["ctx_tools", "web_tools"]
    assert await stubs["web_tools"].web_search(query="x", n=2) == ("web_tools.web_search", {"query": "x", "n": 2})
    assert dir(stubs["web_tools"]) == ["web_fetch", "web_search"]


def test_an_unknown_name_is_an_attribute_error_listing_the_names():
    stubs = build_stubs(["web_tools.web_search"], echo)

    with pytest.raises(AttributeError, match=r"no tool 'delete' in this run; it has: web_search"):
        stubs["web_tools"].delete()
    assert repr(stubs["web_tools"]) == "<tools web_tools: web_search>"


async def test_arguments_may_be_given_by_place():
    stubs = build_stubs(["a.b", "a.c"], echo, [("ref", "offset"), ()])

    assert await stubs["a"].b("x", offset=2) == ("a.b", {"ref": "x", "offset": 2})
    with pytest.raises(TypeError, match="takes 2 arguments, but 3 were given; they are: ref, offset"):
        stubs["a"].b(1, 2, 3)
    with pytest.raises(TypeError, match="takes 0 arguments"):
        stubs["a"].c(1)
    with pytest.raises(TypeError, match="'ref' twice"):
        stubs["a"].b("x", ref="y")


def test_without_names_of_parameters_arguments_need_names():
    with pytest.raises(TypeError):
        build_stubs(["a.b"], echo)["a"].b(1)


async def test_the_alias_of_an_mcp_server_is_inside_that_of_all() -> None:
    stubs = build_stubs(["mcp.crm.find", "mcp.crm.add", "mcp.files.read"], echo, [("name",)])
    assert (dir(stubs["mcp"]), dir(stubs["mcp"].crm)) == (["crm", "files"], ["add", "find"])
    assert await stubs["mcp"].crm.find("Ada") == ("mcp.crm.find", {"name": "Ada"})
    with pytest.raises(AttributeError, match=r"mcp\.crm has no tool 'read' in this run; it has: add, find"):
        _ = stubs["mcp"].crm.read
