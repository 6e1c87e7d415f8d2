"""The database is restored to a point in time, from a base backup and the archived WAL: docs/operate.md, "Backup".

`make test SLOW=1 TESTS=tests/chaos/test_restore.py` plays it.
"""

import asyncio
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from faults.replicas import save_base_backup
from helpers.forks import WORKER_BOUNDS, ForkingSpawn
from helpers.homes import copy_home
from helpers.waiting import wait_until
from platform_harness.harness import Harness
from redis import Redis

from everturn_client.errors import ProblemError
from everturn_local.home import Home, load_secrets
from everturn_local.privileges import SERVER_UID, is_root
from everturn_local.servers.databases import DATABASE
from everturn_local.servers.postgres import EmbeddedPostgres
from everturn_local.supervision.platform import Platform

pytestmark = [pytest.mark.chaos, pytest.mark.slow, pytest.mark.timeout(300)]

SCRIPTS = Path(__file__).with_name("scripts.toml")
ENVIRONMENT = {"EVERTURN_MODEL": f"scripted:{SCRIPTS}", WORKER_BOUNDS: '{"lease_s": 3, "orphans_after_s": 4}'}
KEEP_ORPHANS = {"ORPHANS": "keep"}


async def test_the_state_of_a_point_in_time_comes_back_and_turns_go_on(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    home = Home(copy_home(tmp_path_factory.mktemp("restore")))
    archive, backup = home.postgres.parent / "archive", home.postgres.parent / "backup"
    for folder in (archive, backup):
        folder.mkdir(mode=0o700)
        if is_root():
            os.chown(folder, SERVER_UID, SERVER_UID)

    async with open_platform(home) as platform:
        await set_up_archive(platform, archive)
    async with open_platform(home) as platform:
        harness = Harness(platform)
        before = await answer(harness, "new", "script:plain please")
        await asyncio.to_thread(save_base_backup, platform.postgres.superuser_url(""), backup)
        kept = await answer(harness, "new", "script:plain please")
        erased = await answer(harness, "new", "script:plain please")
        # A turn that runs at that time: it has begun to think, and has more to say.
        running = await harness.clients[0].send_message(kept, "script:slow please")
        await harness.watch(kept).wait_text(running.turn_id, "thinking")
        moment = await run_sql(platform, "SELECT clock_timestamp()")
        await harness.watch(kept).wait_ended(running.turn_id)
        await harness.clients[0].delete_conversation(erased)
        lost = await answer(harness, "new", "script:plain please")
        await archive_all(platform, archive)
        await harness.quit()

    await asyncio.to_thread(restore, home, backup, archive, moment)
    server = EmbeddedPostgres(home.postgres, password=load_secrets(home).postgres)
    await asyncio.to_thread(server.start)
    await wait_until(lambda: server.run_sql("SELECT pg_is_in_recovery()") == "f")
    await asyncio.to_thread(server.stop)
    async with open_platform(home, KEEP_ORPHANS) as platform:
        with Redis.from_url(platform.redis.url) as redis:
            redis.flushall()
        harness = Harness(platform)
        resumed = await harness.watch(kept).wait_ended(running.turn_id)
        for conversation in (before, kept, erased):
            await harness.check_invariants(conversation)
            await answer(harness, conversation, "script:plain please")
            await harness.check_invariants(conversation)
        with pytest.raises(ProblemError) as missing:
            await harness.clients[0].get_conversation(lost)
        await harness.quit()

    assert resumed.status == "completed"
    assert missing.value.problem.status == 404


def open_platform(home: Home, env: dict[str, str] | None = None) -> Platform:
    return Platform(home.root, ingresses=1, workers=1, env=ENVIRONMENT | (env or {}), spawn=ForkingSpawn())


async def run_sql(platform: Platform, sql: str) -> str:
    return await asyncio.to_thread(platform.postgres.run_sql, sql, database=DATABASE)


async def set_up_archive(platform: Platform, archive: Path) -> None:
    """Holds from the next start of the server."""
    await run_sql(
        platform,
        f"""ALTER SYSTEM SET archive_mode = 'on';
            ALTER SYSTEM SET archive_command = 'test ! -f {archive}/%f && cp %p {archive}/%f';""",
    )


async def answer(harness: Harness, conversation: str, text: str) -> str:
    sent = await harness.clients[0].send_message(conversation, text)
    await harness.watch(sent.conversation_id).wait_ended(sent.turn_id)
    await harness.close()
    return sent.conversation_id


async def archive_all(platform: Platform, archive: Path) -> None:
    """Returns once everything that was committed is in the archive."""
    last = await run_sql(platform, "SELECT pg_walfile_name(pg_switch_wal())")
    await wait_until((archive / last).exists)


def restore(home: Home, backup: Path, archive: Path, moment: str) -> None:
    """As an operator does: the data are replaced by the backup, which reads the archive up to that time."""
    data = home.postgres / "data"
    shutil.rmtree(data)
    subprocess.run(["cp", "--archive", str(backup), str(data)], check=True, timeout=60)
    with (data / "postgresql.auto.conf").open("a") as settings:
        settings.write(
            f"restore_command = 'cp {archive}/%f %p'\nrecovery_target_time = '{moment}'\n"
            "recovery_target_action = 'promote'\n"
        )
    signal_file = data / "recovery.signal"
    signal_file.touch()
    if is_root():
        os.chown(signal_file, SERVER_UID, SERVER_UID)
