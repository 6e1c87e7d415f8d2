import pytest

from everturn.tools.web.offered import WebAccess, build_web_tools


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
    assert [tool.spec.tool_id for tool in build_web_tools(access)] == [f"web_tools.{name}" for name in names]
