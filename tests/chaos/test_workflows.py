"""Turns that an author's workflow runs, while workers and the process of the workflow die at each border: each step
takes effect once, and there is one last answer."""

import asyncio
import importlib.util
import signal
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from helpers.forks import WORKER_BOUNDS
from helpers.slow import choose
from helpers.waiting import wait_until
from platform_harness.harness import Harness
from turn_harness.authored import LocalWorkflow
from turn_harness.harness import Bench
from turn_harness.replies import answer

from everturn.core.failpoints import Failpoints
from everturn.events.views import TurnView
from everturn.timeline.turns import Outcome
from everturn_local.servers.databases import DATABASE

pytestmark = [pytest.mark.chaos, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(240)]

FOLDER = Path(__file__).parent
EXTRA_ENV = {
    WORKER_BOUNDS: '{"lease_s": 4, "orphans_after_s": 4}',
    "WORKER_SLOTS": "1",
    "EVERTURN_MODEL": f"scripted:{FOLDER / 'workflow_scripts.toml'}",
    "BUNDLES_DIR": str(FOLDER / "bundles"),
}
WORKERS = ("worker-1", "worker-2")
BORDERS = [
    ("turn.opened:1", "turn.before_step_begun:1"),
    ("turn.after_step_begun:1", "turn.before_step_end:1"),
    ("turn.after_step_end:1", "turn.mid_stream:3"),
    ("turn.before_segment_end:1", "turn.after_segment_end:1"),
    ("turn.before_step_end:2", "turn.after_step_end:2"),
    ("turn.before_segment:1", "turn.after_segment:1"),
    ("turn.before_first_token:2", "turn.before_segment_end:2"),
    ("turn.after_segment_end:2", "turn.before_step_begun:2"),
    ("turn.after_step_begun:2", "turn.before_step_end:3"),
    ("turn.after_step_end:3", "turn.before_emitted:1"),
    ("turn.after_emitted:1", "turn.before_feedback:1"),
    ("turn.after_feedback:1", "turn.before_file:1"),
    ("turn.after_file:1", "turn.workflow_ended:1"),
    ("turn.before_channels:1", "turn.after_channels:1"),
    ("turn.before_c3:1", "turn.after_c3:1"),
    ("turn.claimed:1", "turn.published:1"),
    ("turn.announced:1", "turn.before_first_token:1"),
]
DRAFT = "A ticket about the door."
FIRST, SECOND = answer("I have opened a ticket."), answer("The ticket is open.")
PLACES = (
    *("start", "before open", "after open", "opened", "answered", "before note", "after note", "noted"),
    *("drafted", "checked", "before mail", "after mail", "mailed", "shown", "judged", "filed"),
)


class Server:
    """What the steps of turns have written."""

    def __init__(self) -> None:
        self.port = 0
        self.lines: Counter[tuple[str, str]] = Counter()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        verb, key, turn_id = (await reader.readline()).decode().split()
        if verb != "count":
            self.lines[key, turn_id] += 1
        writer.write(f"{self.lines[key, turn_id]}\n".encode())
        writer.close()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(harness: Harness) -> AsyncIterator[Server]:
    """Opened once the bundle is ready."""
    query = "SELECT id FROM bundle WHERE id = 'clerk' AND seen_at > '-infinity' AND content IS NOT NULL"
    await wait_until(lambda: harness.platform.postgres.run_sql(query, database=DATABASE))
    opened = Server()
    async with await asyncio.start_server(opened.serve, "127.0.0.1", 0) as listening:
        opened.port = listening.sockets[0].getsockname()[1]
        yield opened


async def test_workers_die_at_every_place_where_a_turn_can_stop(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    hits: Counter[str] = Counter()
    monkeypatch.setattr(Failpoints, "hit", lambda _, name: hits.update([name]))
    spec = importlib.util.spec_from_file_location("clerk", FOLDER / "bundles" / "clerk" / "workflow.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    bench = Bench(f"<channel:draft>{DRAFT}</channel:draft>", FIRST, SECOND, authored=LocalWorkflow(module.Clerk()))

    await bench.say(f"script:clerk {server.port} nowhere")
    await bench.work()

    assert bench.exits[0].outcome is Outcome.COMPLETED
    del hits["turn.mid_stream"]
    reached = {f"{name}:{number}" for name, count in hits.items() for number in range(1, count + 1)}
    assert reached - {each for pair in BORDERS for each in pair} == set()


def check_turn(server: Server, turn: TurnView, *, most_notes: int = 2) -> None:
    assert (turn.outcome, turn.answer) == ("completed", "The ticket is open.")
    shown = [(text.marker, text.text) for text in turn.texts if text.channel in ("draft", "timeline_text")]
    assert shown == [("canvas", DRAFT), ("timeline_text", DRAFT)]
    assert [(file.filename, file.size) for file in turn.files] == [("ticket.txt", 4)]
    answers = [text.text for text in turn.texts if text.channel == "answer"]
    assert answers == ["I have opened a ticket.", "The ticket is open."]
    assert [server.lines[key, turn.turn_id] for key in ("open", "mail")] == [1, 1]
    # An idempotent step can be repeated.
    assert 1 <= server.lines["note", turn.turn_id] <= most_notes


def check_feedback(harness: Harness, turn_id: str) -> None:
    query = f"SELECT string_agg(text, ',') FROM feedback WHERE turn_id = '{turn_id}' AND origin = 'machine'"
    assert harness.platform.postgres.run_sql(query, database=DATABASE).strip() == "The ticket is open."


@pytest.mark.parametrize("failpoints", choose(BORDERS), ids=" ".join)
async def test_workers_killed_at_two_borders_repeat_no_step(
    harness: Harness, server: Server, failpoints: tuple[str, str]
) -> None:
    harness.platform.auto_restart = False
    await asyncio.gather(
        *(
            harness.platform.restart(worker, extra_env={"FAILPOINT": f"{failpoint}:kill"})
            for worker, failpoint in zip(WORKERS, failpoints, strict=True)
        )
    )

    text = f"script:clerk {server.port} nowhere"
    sent = await asyncio.gather(
        *(client.send_message("new", text, bundle_id="clerk") for client in harness.clients[:2])
    )
    watchers = [harness.watch(each.conversation_id, ingress=n) for n, each in enumerate(sent)]
    for worker in WORKERS:
        assert await harness.platform.wait_exit(worker) == -signal.SIGKILL
    await asyncio.gather(*(harness.platform.restart(worker) for worker in WORKERS))

    for each, watcher in zip(sent, watchers, strict=True):
        check_turn(server, await watcher.wait_ended(each.turn_id))
        check_feedback(harness, each.turn_id)
        await harness.check_invariants(each.conversation_id, watcher)
    await harness.close()


@pytest.mark.parametrize("place", choose(PLACES))
async def test_a_killed_process_of_a_workflow_repeats_no_step(harness: Harness, server: Server, place: str) -> None:
    sent = await harness.clients[0].send_message("new", f"script:clerk {server.port} {place}", bundle_id="clerk")
    watcher = harness.watch(sent.conversation_id)

    check_turn(server, await watcher.wait_ended(sent.turn_id))
    check_feedback(harness, sent.turn_id)
    assert server.lines[place.replace(" ", "-"), sent.turn_id] >= 1
    await harness.check_invariants(sent.conversation_id, watcher)
    await harness.close()
