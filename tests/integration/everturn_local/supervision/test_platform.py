"""The whole platform, with real servers and small services in place of ours."""

import asyncio
import os
import signal
import sys
import textwrap
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from helpers.homes import copy_home

from everturn_local.home import Home, HomeInUseError
from everturn_local.processes import Child, try_record
from everturn_local.servers.databases import DATABASE
from everturn_local.settings import load_environment
from everturn_local.supervision.platform import NotStarted, Platform, UnknownPart
from everturn_local.supervision.service import ServiceSpec, ServiceStartError

SpecMaker = Callable[..., ServiceSpec]
POLITE = """
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
ready(url="http://127.0.0.1:1", mark=os.environ.get("MARK", ""))
signal.pause()
"""


@pytest.fixture
def reports() -> list[str]:
    return []


@pytest.fixture
async def platform(home: Home, make_spec: SpecMaker, reports: list[str]) -> AsyncIterator[Platform]:
    specs = [make_spec("ingress-1", POLITE), make_spec("worker-1", POLITE)]
    platform = Platform(copy_home(home.root), durable=False, report=reports.append, specs=lambda *_: specs)
    await platform.start()
    yield platform
    await platform.stop()


async def test_all_parts_run_and_what_services_say_can_be_read(platform: Platform):
    assert all(platform.pid(name) for name in ("postgres", "redis", "ingress-1", "worker-1"))
    assert platform.urls == ["http://127.0.0.1:1"]
    assert platform.postgres.run_sql("SELECT count(*) FROM alembic_version", database=DATABASE) == "1"


async def test_a_service_and_a_server_that_die_are_started_again(platform: Platform, reports: list[str]):
    for name in ("worker-1", "postgres", "redis"):
        old = platform.pid(name)

        await platform.kill_and_wait(name)

        assert platform.pid(name) not in (None, old)
    assert sum("signal SIGKILL" in line for line in reports) == 3


async def test_a_server_that_comes_back_has_its_address_and_data(platform: Platform):
    platform.postgres.run_sql("CREATE TABLE t AS SELECT 7 AS n")
    url = platform.database.worker

    await platform.kill_and_wait("postgres")

    assert platform.postgres.run_sql("SELECT n FROM t") == "7"
    assert str(platform.postgres.port) in url


async def test_with_restarts_off_a_dead_part_stays_dead_until_it_is_restarted(platform: Platform):
    platform.auto_restart = False

    platform.kill("worker-1")
    code = await platform.wait_exit("worker-1")
    await asyncio.sleep(0)
    dead = platform.pid("worker-1")
    await platform.restart("worker-1", extra_env={"MARK": "second"})

    assert (code, dead) == (-signal.SIGKILL, None)
    assert platform.reports["worker-1"]["mark"] == "second"


async def test_a_stopped_part_stays_down(platform: Platform):
    await platform.stop_part("worker-1")

    assert platform.pid("worker-1") is None


async def test_an_unknown_part_is_an_error_that_names_the_known_ones(platform: Platform):
    with pytest.raises(UnknownPart, match="worker-1"):
        platform.kill("worker-9")


async def test_a_second_platform_on_the_home_is_refused_and_hurts_nothing(platform: Platform, home: Home):
    with pytest.raises(HomeInUseError):
        await Platform(home.root).start()

    assert platform.postgres.run_sql("SELECT 1") == "1"


async def test_stopping_ends_every_process(platform: Platform):
    pids = [platform.pid(name) for name in ("postgres", "redis", "ingress-1", "worker-1")]

    await platform.stop()

    assert [pid for pid in pids if pid and try_record(pid)] == []
    with pytest.raises(UnknownPart):
        platform.pid("postgres")


async def test_a_service_that_cannot_start_stops_all_and_its_log_is_shown(home: Home, make_spec: SpecMaker):
    specs = [make_spec("ingress-1", POLITE), make_spec("worker-1", "sys.exit('no such model')")]
    platform = Platform(home.root, durable=False, specs=lambda *_: specs)

    with pytest.raises(ServiceStartError, match="no such model"):
        await platform.start()

    assert list(home.processes.iterdir()) == []
    assert not (home.postgres / "data" / "postmaster.pid").exists()


def test_a_platform_that_was_not_started_has_no_addresses(home: Home):
    with pytest.raises(NotStarted):
        assert Platform(home.root).database


async def test_what_a_killed_run_left_is_ended_by_the_next_start(home: Home, make_spec: SpecMaker, tmp_path: Path):
    left = Child([sys.executable, "-c", "import signal; signal.pause()"], env={}, log=tmp_path / "left.log")
    record = try_record(left.pid)
    assert record is not None
    fields = f'{{"boot": "{record.boot}", "pid": {record.pid}, "started": {record.started}}}'
    (home.processes / "worker-7.json").write_text(fields)
    (home.processes / "worker-8.json").write_text(fields.replace(str(record.started), "1"))
    reports: list[str] = []

    async with Platform(home.root, durable=False, report=reports.append, specs=lambda *_: []):
        code = await left.wait_exit()

    assert code == -signal.SIGKILL
    assert any("worker-7" in line for line in reports)
    assert not any("worker-8" in line for line in reports)


async def test_nothing_outlives_a_killed_run_and_the_next_start_keeps_the_data(home: Home, tmp_path: Path):
    script = textwrap.dedent(
        f"""
        import asyncio, os, signal, sys, textwrap
        from pathlib import Path
        from everturn_local.supervision.platform import Platform
        from everturn_local.supervision.service import ServiceSpec
        log = Path({str(home.logs)!r}) / "w.log"
        program = '''
        import os, signal
        os.write(int(os.environ["READY_FD"]), b'{{"ready": true}}' + bytes([10]))
        signal.pause()
        '''
        async def main():
            spec = ServiceSpec("worker-1", [sys.executable, "-S", "-c", textwrap.dedent(program)], {{}}, log)
            platform = Platform(Path({str(home.root)!r}), specs=lambda *_: [spec])
            await platform.start()
            platform.postgres.run_sql("CREATE TABLE t AS SELECT 7 AS n")
            print(*(platform.pid(name) for name in ("postgres", "redis", "worker-1")), flush=True)
            os.kill(os.getpid(), signal.SIGKILL)
        asyncio.run(main())
        """
    )
    log = tmp_path / "killed.log"
    killed = Child([sys.executable, "-c", script], env=load_environment(), log=log)
    code = await asyncio.wait_for(killed.wait_exit(), 40)
    pids = [int(word) for word in log.read_text().split()]

    async with Platform(home.root, durable=False, specs=lambda *_: []) as platform:
        kept = platform.postgres.run_sql("SELECT n FROM t")

    assert code == -signal.SIGKILL
    assert len(pids) == 3
    assert kept == "7"
    assert [pid for pid in pids if try_record(pid)] == []
    assert os.getpid() not in pids
