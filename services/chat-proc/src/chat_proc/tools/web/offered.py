"""Which web tools can be offered: fetching unless it is switched off, searching if a provider's key is set."""

from dataclasses import dataclass

from chat_proc.catalog.call_policy import AddressRules
from chat_proc.catalog.tool import Tool
from chat_proc.tools.web.client import AddressGuard, WebClient
from chat_proc.tools.web.pages import PageReader
from chat_proc.tools.web.resolver import NameResolver
from chat_proc.tools.web.web_fetch import WebFetchTool
from chat_proc.tools.web.web_search import BraveSearch, SearchProvider, TavilySearch, WebSearchTool


@dataclass(frozen=True, slots=True)
class WebAccess:
    """The operator's settings; an empty key counts as none. `in_programs` lets generated programs call the tools."""

    fetch: bool
    brave_key: str = ""
    tavily_key: str = ""
    in_programs: bool = False


def build_web_tools(
    access: WebAccess, rules: AddressRules, reader: PageReader, resolver: NameResolver
) -> tuple[Tool, ...]:
    """The tools, in prompt order. With both keys, Tavily is used if Brave fails."""
    providers: list[SearchProvider] = []
    if access.brave_key:
        providers.append(BraveSearch(access.brave_key))
    if access.tavily_key:
        providers.append(TavilySearch(access.tavily_key))
    tools: list[Tool] = [WebSearchTool(providers, in_programs=access.in_programs)] if providers else []
    if access.fetch:
        client = WebClient(AddressGuard(resolver.resolve), is_denied=rules.is_denied)
        tools.append(WebFetchTool(client, reader, in_programs=access.in_programs))
    return tuple(tools)
