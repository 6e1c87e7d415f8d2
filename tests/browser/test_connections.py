"""The page to which an authorization server sends the browser of a person who connects an account."""

from typing import Any

import pytest
from browsing.person import Person
from playwright.async_api import expect

from everturn.core.identity import Principal
from everturn.core.ids import ApprovalId, ConversationId
from everturn.mcp_connections.connections import ConnectRequest, ServerKey, hash_state
from everturn.mcp_connections.postgres import PostgresConnections
from everturn.postgres.pool import open_database

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session")]


async def test_a_person_connects_an_account(person: Person, harness: Any) -> None:
    who, key = Principal("default", "default", "dev"), ServerKey("support", "mail")
    link = ConnectRequest(ApprovalId("appr_b"), ConversationId("conv_b"), hash_state("b"), "Example Mail", b"sealed")
    url = f"{person.url.rstrip('/')}/mcp-connections/callback/support/mail"

    async with open_database(harness.platform.database.worker, pool_size=1, application_name="test-worker") as worker:
        store = PostgresConnections(worker)
        await store.save_request(who, key, link)
        await person.page.goto(f"{url}?state=b&code=code")
        await expect(person.page.get_by_text("Example Mail")).to_be_visible()
        await person.page.get_by_role("button", name="Connect").click()
        await expect(person.page.get_by_role("heading", name="Signed in")).to_be_visible()
        answer = await store.claim_answer(who, key, accepts=bool, lease_s=1)

    assert person.page.url == url
    assert answer is not None and answer.code == "code"
