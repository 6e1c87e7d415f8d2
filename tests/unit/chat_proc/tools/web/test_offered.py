import pytest

from chat_proc.catalog.call_policy import AddressRules
from chat_proc.tools.web.offered import WebAccess, build_web_tools
from chat_proc.tools.web.pages import PageReader
from chat_proc.tools.web.resolver import NameResolver


@pytest.mark.parametrize(
    ("access", "names"),
    [
        (WebAccess(fetch=True), ["web_fetch"]),
        (WebAccess(fetch=False), []),
        (WebAccess(fetch=False, brave_key="k"), ["web_search"]),
        (WebAccess(fetch=True, tavily_key="k"), ["web_search", "web_fetch"]),
        (WebAccess(fetch=True, brave_key="k", tavily_key="k"), ["web_search", "web_fetch"]),
    ],
)
def test_searching_is_offered_where_a_key_is_set(access: WebAccess, names: list[str]) -> None:
    tools = build_web_tools(access, AddressRules(), PageReader(), NameResolver())

    assert [tool.spec.tool_id for tool in tools] == [f"web_tools.{name}" for name in names]


@pytest.mark.parametrize("in_programs", [False, True])
def test_programs_get_the_web_tools_only_where_the_operator_says_so(in_programs: bool) -> None:
    tools = build_web_tools(
        WebAccess(fetch=True, brave_key="k", in_programs=in_programs), AddressRules(), PageReader(), NameResolver()
    )

    assert [tool.spec.in_programs for tool in tools] == [in_programs, in_programs]
