"""Programs in containers, end to end: the platform with its broker, what stops a program, and what is left of it."""

import asyncio
import os
import random
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from helpers.forks import WORKER_BOUNDS, ForkingSpawn
from leaks.detector import watching
from leaks.engines import BrokerView, EngineView

from everturn_local.home import Home
from everturn_local.images.choice import choose_containers
from everturn_local.settings import load_environment
from everturn_local.supervision.platform import Platform

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(180)]

CSV = "month,amount\nJan,10\nFeb,20\nJan,5\n"
BEGIN_LIMIT_S = 40.0
GONE_LIMIT_S = 6.0
"""The guarantee is 2 s."""
NAP_S = f"50.{random.randrange(10**6):06}"
BRIEF_S = f"3.{random.randrange(10**6):06}"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def harness(
    tmp_path_factory: pytest.TempPathFactory, make_harness: Callable[[Platform], Any]
) -> AsyncIterator[Any]:
    """Two ingresses, two workers, a broker that keeps a pair warm, the scripted model; at its end nothing is left."""
    folder = tmp_path_factory.mktemp("containers")
    check_containers(folder)
    script = tmp_path_factory.mktemp("script") / "script.toml"
    text = Path(__file__).with_name("containers_script.toml").read_text()
    script.write_text(text.replace('"NAP"', f'"{NAP_S}"').replace('"BRIEF"', f'"{BRIEF_S}"'))
    env = {
        "EVERTURN_MODEL": f"scripted:{script}",
        WORKER_BOUNDS: '{"lease_s": 2, "orphans_after_s": 4}',
        "EXECUTION_MODE": "containers",
        "EXECUTION_PROFILES": '{"default": {"warm": 1, "preload": ["pandas", "matplotlib.pyplot"]}}',
    }
    spawn = ForkingSpawn()
    async with watching() as watch:
        async with Platform(
            folder, ingresses=2, workers=2, env=env, durable=False, containers=True, spawn=spawn
        ) as platform:
            opened = make_harness(platform)
            view = EngineView(f"everturn.broker={platform.reports['broker']['broker']}")
            yield opened
            await opened.quit()
        await watch.wait_nothing_left()
        assert view.load_left() == frozenset()
        view.close()


def check_containers(home: Path) -> None:
    choice = choose_containers(load_environment(), Home(home).broker_socket)
    if not choice.chosen:
        if os.environ.get("CI") == "true":
            pytest.fail(f"containers are needed here: {choice.why}")
        pytest.skip(choice.why)


@pytest_asyncio.fixture(loop_scope="module", autouse=True)
async def nothing_stays(harness: Any) -> AsyncIterator[None]:
    """After each test the broker has only pairs that wait for a run."""
    yield
    await harness.close()
    view = BrokerView(str(harness.platform.home.broker_socket))
    async with asyncio.timeout(GONE_LIMIT_S):
        while await asyncio.to_thread(view.load_left):  # noqa: ASYNC110 - an engine has no event of ours
            await asyncio.sleep(0.1)
    view.close()


def find_sleepers(nap_s: str) -> list[int]:
    """Processes that sleep for exactly this long; those of containers are processes of this machine too."""
    found: list[int] = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                if (entry / "cmdline").read_bytes() == f"sleep\0{nap_s}\0".encode():
                    found.append(int(entry.name))
    return found


async def wait_for_sleepers(nap_s: str, count: int, limit_s: float) -> None:
    async with asyncio.timeout(limit_s):
        while len(find_sleepers(nap_s)) != count:  # noqa: ASYNC110 - there is no event for another process's children
            await asyncio.sleep(0.05)


async def start_program(harness: Any, text: str, nap_s: str) -> tuple[Any, Any]:
    """A turn whose program has written its file and sleeps."""
    sent = await harness.clients[0].send_message("new", text)
    watcher = harness.watch(sent.conversation_id)
    await wait_for_sleepers(nap_s, 1, BEGIN_LIMIT_S)
    return sent, watcher


async def test_a_csv_becomes_a_chart_and_a_table(harness: Any, tmp_path: Path) -> None:
    data = tmp_path / "sales.csv"
    data.write_text(CSV)

    sent = await harness.clients[0].send_message("new", "script:chart please", files=[data])
    watcher = harness.watch(sent.conversation_id)
    turn = await watcher.wait_ended(sent.turn_id)

    assert turn.answer == "Here are a chart and a table."
    files = {file.mime: file for file in turn.files}
    chart = await harness.clients[0].download(files["image/png"].artifact_id, tmp_path / "chart.png")
    table = await harness.clients[0].download(files["text/csv"].artifact_id, tmp_path / "table.csv")
    assert chart.read_bytes().startswith(b"\x89PNG\r\n")
    assert table.read_text() == "month,amount\nFeb,20\nJan,15\n"
    await harness.check_invariants(sent.conversation_id, watcher)


@pytest.mark.parametrize(
    ("kind", "text", "outcome"), [("cancel", "", "cancelled"), ("steer", "Stop that.", "completed")]
)
async def test_a_program_that_is_stopped_is_gone_and_its_file_is_kept(
    harness: Any, kind: str, text: str, outcome: str, tmp_path: Path
) -> None:
    sent, watcher = await start_program(harness, "script:nap please", NAP_S)

    await harness.clients[1].send_signal(sent.conversation_id, kind, text)
    await wait_for_sleepers(NAP_S, 0, GONE_LIMIT_S)
    turn = await watcher.wait_ended(sent.turn_id)

    assert turn.outcome == outcome
    assert [file.filename for file in turn.files] == ["early.txt"]
    kept = await harness.clients[0].download(turn.files[0].artifact_id, tmp_path / "early.txt")
    assert kept.read_text() == "written before the end"
    await harness.check_invariants(sent.conversation_id, watcher)


async def test_a_followup_meanwhile_leaves_the_program_alone(harness: Any) -> None:
    sent, watcher = await start_program(harness, "script:brief please", BRIEF_S)

    followup = await harness.clients[1].send_message(sent.conversation_id, "And tell me when it is done.")
    turn = await watcher.wait_ended(sent.turn_id)

    assert followup.turn_id == sent.turn_id
    assert [file.filename for file in turn.files] == ["done.txt"]
    assert turn.answer == "The program is done."
    await harness.check_invariants(sent.conversation_id, watcher)


async def test_a_killed_worker_leaves_no_program_and_one_end(harness: Any) -> None:
    platform = harness.platform
    platform.auto_restart = False
    await platform.stop_part("worker-2")
    sent, watcher = await start_program(harness, "script:brief please", BRIEF_S)

    platform.kill("worker-1", signal.SIGKILL)
    await wait_for_sleepers(BRIEF_S, 0, GONE_LIMIT_S)
    await platform.restart("worker-2")
    turn = await watcher.wait_ended(sent.turn_id)
    await platform.restart("worker-1")
    platform.auto_restart = True

    assert (turn.status, turn.answer) == ("completed", "The program is done.")
    assert [step.status for step in turn.steps] == ["completed"]
    assert [file.filename for file in turn.files] == ["done.txt"]
    await harness.check_invariants(sent.conversation_id, watcher)


@pytest.mark.slow
async def test_a_broker_killed_in_the_middle_fails_the_run_and_serves_the_next(harness: Any) -> None:
    sent, watcher = await start_program(harness, "script:nap please", NAP_S)

    async with asyncio.timeout(BEGIN_LIMIT_S):
        await harness.platform.kill_and_wait("broker")
    await wait_for_sleepers(NAP_S, 0, GONE_LIMIT_S)
    turn = await watcher.wait_ended(sent.turn_id)
    again, later = await start_program(harness, "script:brief please", BRIEF_S)
    next_turn = await later.wait_ended(again.turn_id)

    assert (turn.status, turn.answer) == ("completed", "I stopped the program.")
    assert [step.status for step in turn.steps] == ["error"]
    assert [step.status for step in next_turn.steps] == ["completed"]
    await harness.check_invariants(sent.conversation_id, watcher)
