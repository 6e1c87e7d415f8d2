"""A person uploads a document once, and the agent cites its page in another conversation."""

import asyncio
from pathlib import Path
from typing import Any

import httpx2
import pytest
from helpers.forks import WORKER_BOUNDS, ForkingSpawn
from helpers.homes import copy_home
from uploads.pdfs import pdf_of_texts

from everturn_client.client import EverturnClient
from everturn_local.servers.databases import DATABASE
from everturn_local.supervision.platform import Platform

pytestmark = pytest.mark.e2e

SCRIPT = Path(__file__).with_name("collections_script.toml")
BASE = "/collections/default/default"
RESULTS = "SELECT string_agg(body, ' ' ORDER BY seq) FROM block WHERE type = 'react.tool.result'"


async def keep_document(url: str, name: str, data: bytes) -> None:
    """Upload a document to a new collection, and wait until agents find it."""
    async with httpx2.AsyncClient(base_url=url, timeout=30) as http:
        created = await http.post(BASE, json={"title": "Contracts"})
        documents = f"{BASE}/{created.json()['id']}/documents"
        assert (await http.post(documents, files=[("files", (name, data, "application/pdf"))])).status_code == 201
        async with asyncio.timeout(60):
            while (await http.get(documents)).json()["documents"][0]["state"] != "indexed":  # noqa: ASYNC110 - no event
                await asyncio.sleep(0.1)


async def test_an_agent_cites_a_page_of_a_kept_document(tmp_path: Path) -> None:
    env = {"EVERTURN_MODEL": f"scripted:{SCRIPT}", WORKER_BOUNDS: '{"lease_s": 2}'}
    home = copy_home(tmp_path / "home")

    async with (
        Platform(home, ingresses=1, workers=1, env=env, durable=False, spawn=ForkingSpawn()) as platform,
        EverturnClient(platform.urls[0]) as client,
    ):
        pdf = pdf_of_texts("The rent is due monthly.", "The zephyr clause ends it.")
        await keep_document(platform.urls[0], "lease.pdf", pdf)
        sent = await client.send_message("new", "script:collections what ends the lease?")
        events: dict[str, Any] = {}
        async with asyncio.timeout(60):
            async for envelope in client.events(sent.conversation_id, "0-0"):
                events[envelope.type] = envelope.data
                if envelope.type in ("chat.complete", "chat.error"):
                    break
        results = await asyncio.to_thread(platform.postgres.run_sql, RESULTS, database=DATABASE)
        async with httpx2.AsyncClient(base_url=platform.urls[0]) as http:
            turn = f"/conversations/default/default/{sent.conversation_id}/turns/{sent.turn_id}"
            context = (await http.get(f"{turn}/rounds/1/context")).text

    assert "chat.complete" in events
    assert "lease.pdf, under page 2" in results
    (cited,) = events["chat.citations"].sources
    assert cited.title == "lease.pdf, page 2"
    assert "[COLLECTIONS]\\n- Contracts: 1 document\\n" in context
