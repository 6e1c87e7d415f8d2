"""A web site of our own on this machine, and a guard that lets the tools reach it and nothing else."""

from collections.abc import AsyncIterator, Callable, Sequence
from ipaddress import ip_address

import pytest

from chat_proc.catalog.tool import Tool, ToolCall, ToolContext, ToolOutcome
from chat_proc.tools.web.client import Address, AddressGuard, is_public
from everturn.core.identity import Principal
from everturn.core.ids import CallId, ConversationId, TurnId
from everturn_testing.source_pool import MemorySourcePool
from everturn_testing.timeline import NOW
from everturn_testing.turns.live_turn import RecordingTurn
from everturn_testing.web_site import Site, open_site

LOCAL = ip_address("127.0.0.1")


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    async with open_site() as site:
        yield site


@pytest.fixture
def guard(site: Site) -> AddressGuard:
    """Knows `site.test` and hosts that are numbers; allows this machine besides the public internet."""

    async def resolve(host: str, port: int, turn_id: TurnId) -> Sequence[str]:
        return ["127.0.0.1"] if host == "site.test" else [host]

    def is_allowed(address: Address) -> bool:
        return address == LOCAL or is_public(address)

    return AddressGuard(resolve, is_allowed=is_allowed, ports={80, 443, site.port})


@pytest.fixture
def pool() -> MemorySourcePool:
    return MemorySourcePool()


@pytest.fixture
def call_tool(pool: MemorySourcePool) -> Callable[..., object]:
    async def run(tool: Tool, params: dict[str, object]) -> ToolOutcome:
        context = ToolContext(
            principal=Principal("acme", "main", "ann"),
            conversation_id=ConversationId("conv_1"),
            turn_id=TurnId("turn_1"),
            round=1,
            blocks=(),
            now=NOW,
            pool=pool,
            live=RecordingTurn(),
        )
        return await tool.run(ToolCall(CallId("call_1"), tool.spec.params.model_validate(params), None, context))

    return run
