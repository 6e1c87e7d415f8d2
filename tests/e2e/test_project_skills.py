"""An administrator uploads, replaces and deletes a skill; turns use the one with which they began."""

import asyncio
from pathlib import Path

import pytest
from helpers.admins import open_admin
from helpers.forks import WORKER_BOUNDS, ForkingSpawn
from helpers.homes import copy_home

from everturn.skills.archive import pack_skill
from everturn_client.client import EverturnClient
from everturn_local.servers.databases import DATABASE
from everturn_local.supervision.platform import Platform

pytestmark = pytest.mark.e2e

SCRIPT = Path(__file__).with_name("skills_script.toml")
URL = "/skills/default/default/refunds"
RESULTS = "SELECT string_agg(body, ' ' ORDER BY seq) FROM block WHERE type = 'react.tool.result' AND turn_id = '{turn}'"


def build_skill(version: str) -> bytes:
    front = b"---\nname: refunds\ndescription: Decides on refunds.\n---\n"
    return pack_skill({"SKILL.md": front + f"Rule {version}.".encode(), "scripts/rule.py": f"# {version}".encode()})


@pytest.mark.slow
async def test_turns_use_the_skills_with_which_they_began(tmp_path: Path) -> None:
    env = {"EVERTURN_MODEL": f"scripted:{SCRIPT}", WORKER_BOUNDS: '{"lease_s": 2}'}
    home = copy_home(tmp_path / "home")
    async with (
        Platform(home, ingresses=1, workers=1, env=env, durable=False, spawn=ForkingSpawn()) as platform,
        EverturnClient(platform.urls[0]) as client,
        open_admin(platform) as admin,
    ):

        async def run_turn(replacement: bytes | None = None) -> str:
            """The results of a turn's calls; the skill is replaced once the turn has begun."""
            sent = await client.send_message("new", "script:skills when?")
            ended = None
            async with asyncio.timeout(60):
                async for envelope in client.events(sent.conversation_id, "0-0"):
                    if envelope.type == "chat.start" and replacement is not None:
                        assert (await admin.put(URL, content=replacement)).status_code == 200
                    if envelope.type in ("chat.complete", "chat.error"):
                        ended = envelope.type
                        break
            assert ended == "chat.complete"
            query = RESULTS.format(turn=sent.turn_id)
            return await asyncio.to_thread(platform.postgres.run_sql, query, database=DATABASE)

        assert (await admin.put(URL, content=build_skill("one"))).status_code == 201
        first = await run_turn(build_skill("two"))
        second = await run_turn()
        assert (await admin.delete(URL)).status_code == 204
        third = await run_turn()

    assert "Rule one." in first and "# one" in first and "two" not in first
    assert "Rule two." in second and "# two" in second
    assert "skills/project.refunds/" in second
    assert "no such skill" in third and "Rule" not in third
