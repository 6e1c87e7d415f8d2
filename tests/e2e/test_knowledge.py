"""An agent with a knowledge folder searches it, reads a document and cites it; also if the agent comes from git."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from helpers.forks import WORKER_BOUNDS, ForkingSpawn
from helpers.git_sources import GitSource
from helpers.homes import copy_home
from helpers.waiting import wait_until

from everturn_client.client import EverturnClient
from everturn_local.servers.databases import DATABASE
from everturn_local.supervision.platform import Platform

pytestmark = pytest.mark.e2e

SCRIPT = Path(__file__).with_name("knowledge_script.toml")
BUILT = "SELECT count(*) FROM knowledge_space WHERE bundle_id = 'desk' AND state = 'ready'"
RESULTS = "SELECT string_agg(body, ' ' ORDER BY seq) FROM block WHERE type = 'react.tool.result'"


@pytest.mark.parametrize("from_git", [False, True])
async def test_an_agent_answers_from_its_documents(tmp_path: Path, *, from_git: bool) -> None:
    bundle, config = tmp_path / "bundles/desk", '[ai]\ndefault_bundle = "desk"\n'
    (tmp_path / "bundles").mkdir()
    if from_git:
        source = GitSource(tmp_path / "source")
        bundle = source.folder / "agents/desk"
        config += f'[bundles.desk]\ngit = "{source.url}"\nref = "main"\nfolder = "agents/desk"\n'
    documents = bundle / "knowledge/docs"
    documents.mkdir(parents=True)
    (documents / "architecture.md").write_text("# Architecture\n\nThe zephyr database holds all regions.\n")
    (bundle / "bundle.toml").write_text('id = "desk"\n\n[knowledge]\n')
    if from_git:
        source.commit()
    (tmp_path / "everturn.toml").write_text(config)
    env = {
        "GIT_HOSTS": "file:",
        "EVERTURN_CONFIG": str(tmp_path / "everturn.toml"),
        "EVERTURN_MODEL": f"scripted:{SCRIPT}",
        "BUNDLES_DIR": str(tmp_path / "bundles"),
        WORKER_BOUNDS: '{"lease_s": 2}',
    }
    home = copy_home(tmp_path / "home")

    async with (
        Platform(home, ingresses=1, workers=1, env=env, durable=False, spawn=ForkingSpawn()) as platform,
        EverturnClient(platform.urls[0]) as client,
    ):
        await wait_until(lambda: platform.postgres.run_sql(BUILT, database=DATABASE) == "1")
        sent = await client.send_message("new", "script:knowledge where are the regions?")
        events: dict[str, Any] = {}
        async with asyncio.timeout(60):
            async for envelope in client.events(sent.conversation_id, "0-0"):
                events[envelope.type] = envelope.data
                if envelope.type in ("chat.complete", "chat.error"):
                    break
        results = await asyncio.to_thread(platform.postgres.run_sql, RESULTS, database=DATABASE)

    assert "chat.complete" in events
    assert "ks:docs/architecture.md#L1-L3" in results
    assert "already shown" not in results
    (cited,) = events["chat.citations"].sources
    assert (cited.title, cited.url) == ("Architecture", "ks:docs/architecture.md")
