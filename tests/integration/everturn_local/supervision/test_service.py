"""One service as a process."""

import asyncio
import json
import os
import signal
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

from everturn_local.home import Home
from everturn_local.processes import Child, try_record
from everturn_local.supervision.service import (
    GATED_READY_LIMIT_S,
    READY_LIMIT_S,
    ServiceProcess,
    ServiceSpec,
    ServiceStartError,
    find_ready_limit_s,
    parse_ready_line,
)

SpecMaker = Callable[..., ServiceSpec]
POLITE = """
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
ready(model="offline", mark=os.environ.get("MARK", ""))
signal.pause()
"""
STUBBORN = """
signal.signal(signal.SIGTERM, signal.SIG_IGN)
ready()
while True:
    signal.pause()
"""


async def test_a_service_is_started_when_it_says_so_and_its_report_is_kept(home: Home, make_spec: SpecMaker):
    service = ServiceProcess(make_spec("w", POLITE), records=home.processes)

    report = await service.start(extra_env={"MARK": "m"})

    assert report == service.report == {"model": "offline", "mark": "m"}
    await service.stop()
    assert service.pid is None


async def test_a_service_may_say_on_its_output_that_it_is_ready(home: Home, make_spec: SpecMaker):
    said = "os.environ['READY_FD'] = '1'; ready(model='offline'); print('later', file=sys.stderr); signal.pause()"
    service = ServiceProcess(replace(make_spec("w", said), ready_on_stdout=True), records=home.processes)

    report = await service.start()

    assert report == {"model": "offline"}
    assert "READY_FD" not in service.spec.env
    await service.stop(limit_s=0)


async def test_a_service_that_ends_before_it_is_ready_shows_its_log(home: Home, make_spec: SpecMaker):
    service = ServiceProcess(make_spec("w", "sys.exit('no database')"), records=home.processes)

    with pytest.raises(ServiceStartError, match=r"ended before it was ready(?s:.*)no database"):
        await service.start()

    assert service.pid is None


async def test_a_service_that_says_something_else_is_stopped(home: Home, make_spec: SpecMaker):
    service = ServiceProcess(make_spec("w", "say('hello\\n'); time.sleep(60)"), records=home.processes)

    with pytest.raises(ServiceStartError):
        await service.start()

    assert service.pid is None


async def test_a_service_that_can_not_be_started_leaves_no_open_descriptor(home: Home, make_spec: SpecMaker):
    spec = replace(make_spec("w", ""), argv=["nothing"], ready_on_stdout=True)
    service = ServiceProcess(spec, records=home.processes, spawn=refuse_to_spawn)
    before = find_open_pipes()

    with pytest.raises(OSError, match="no processes left"):
        await service.start()

    assert find_open_pipes() == before
    assert service.pid is None


async def test_a_service_whose_record_can_not_be_saved_is_stopped(home: Home, make_spec: SpecMaker):
    pids: list[int] = []

    class RecordedChild(Child):
        def __init__(self, *args: Any, **more: Any) -> None:
            super().__init__(*args, **more)
            pids.append(self.pid)

    missing = home.processes / "missing"
    service = ServiceProcess(make_spec("w", "time.sleep(60)"), records=missing, spawn=RecordedChild)

    with pytest.raises(FileNotFoundError):
        await service.start()

    assert [try_record(pid) for pid in pids] == [None]
    assert service.pid is None


def refuse_to_spawn(*args: object, **more: object) -> Child:
    raise OSError("no processes left")


def find_open_pipes() -> set[str]:
    links: set[str] = set()
    for number in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            links.add(os.readlink(f"/proc/self/fd/{number}"))
    return {link for link in links if link.startswith("pipe:")}


async def test_a_start_that_is_cancelled_leaves_no_process(home: Home, make_spec: SpecMaker):
    service = ServiceProcess(make_spec("w", "time.sleep(60)"), records=home.processes)
    starting = asyncio.create_task(service.start())
    await asyncio.sleep(0)
    pid = service.pid
    assert pid is not None

    starting.cancel()
    await asyncio.wait([starting])

    assert try_record(pid) is None
    assert list(home.processes.iterdir()) == []


async def test_a_service_that_ignores_sigterm_is_killed_after_the_limit(home: Home, make_spec: SpecMaker):
    service = ServiceProcess(make_spec("w", STUBBORN), records=home.processes)
    await service.start()
    pid = service.pid
    assert pid is not None

    await service.stop(limit_s=0.1)

    assert try_record(pid) is None


async def test_a_killed_service_reports_its_signal(home: Home, make_spec: SpecMaker):
    service = ServiceProcess(make_spec("w", POLITE), records=home.processes)
    await service.start()

    service.send(signal.SIGKILL)

    assert await service.wait_exit() == -signal.SIGKILL
    await service.stop()


async def test_a_service_killed_at_its_start_reports_its_signal(home: Home, make_spec: SpecMaker):
    service = ServiceProcess(make_spec("w", "time.sleep(60)"), records=home.processes)
    starting = asyncio.create_task(service.start())
    await asyncio.sleep(0)
    assert service.pid is not None

    service.send(signal.SIGKILL)

    with pytest.raises(ServiceStartError, match="ended before it was ready"):
        await starting
    assert await service.wait_exit() == -signal.SIGKILL


async def test_a_service_can_be_started_again(home: Home, make_spec: SpecMaker):
    service = ServiceProcess(make_spec("w", POLITE), records=home.processes)
    await service.start()
    first = service.pid
    await service.stop()

    await service.start()

    assert service.pid not in (None, first)
    await service.stop()


@pytest.mark.parametrize(
    "line", [b"", b"ready\n", b"[]\n", b'{"ready": false}\n', b'{"model": "x"}\n', b"\xff\n", b'{"ready": tr']
)
def test_anything_but_a_ready_line_is_refused(line: bytes):
    with pytest.raises(ValueError, match=r".+"):
        parse_ready_line(line)


def test_the_values_of_a_ready_line_become_text():
    line = json.dumps({"ready": True, "url": "http://x", "slots": 4}).encode()

    assert parse_ready_line(line) == {"url": "http://x", "slots": "4"}


def test_a_service_that_first_tries_to_escape_gets_the_time_for_it():
    assert find_ready_limit_s({"EXECUTION_GATE": "battery"}) == GATED_READY_LIMIT_S > READY_LIMIT_S
    assert find_ready_limit_s({"EXECUTION_GATE": "off"}) == find_ready_limit_s({}) == READY_LIMIT_S
