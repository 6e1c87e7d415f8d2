"""Turns that give a task to a coding agent, whose driver these tests play: what it may send, and what becomes of it."""

import asyncio
import gzip
import io
import json
import tarfile
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from turn_harness.checks import check_conversation
from turn_harness.harness import ANN, Bench, BenchWorker, until
from turn_harness.replies import answer, call

from chat_proc.catalog.tool import ToolRegistry
from chat_proc.sandbox.port import RunError, RunRequest, RunResult, ToolCaller
from chat_proc.sandbox.results import build_broken, build_refused
from chat_proc.tools.coding import events, run_agent
from chat_proc.tools.coding.run_agent import CodingAgent, RunAgentTool, load_project_files
from chat_proc.workspace.loading import WorkspaceHistory
from everturn.core.errors import EverturnError
from everturn.events.model import ChatStep, ChatTool
from everturn.execution.messages import GatewayCall, RunLimits, ToolReply
from everturn.execution.profiles import ExecutionProfile
from everturn.files.model import WHITEOUT_MIME, Artifact
from everturn.history.model import Origin
from everturn.history.project import fold_project
from everturn.timeline.blocks import BlockType, ToolResultBody
from everturn.timeline.turns import Outcome, SignalKind
from everturn_testing.files.artifacts import MemoryArtifacts
from everturn_testing.history import MemoryWorkspaceChanges

TOOL = "code_agent.run"
PROFILE = ExecutionProfile(timeout_s=60.0)
RUN = call(TOOL, {"task": "Fix the test."})
SESSION = "session-1"

Play = Callable[["Driver"], Awaitable[None]]


class Driver:
    """The driver of one run, as the worker sees it."""

    def __init__(self, request: RunRequest, call_tool: ToolCaller) -> None:
        self._call_tool = call_tool
        self._count = 0
        self.request = request
        self.order = json.loads(_read(request.inputs["order.json"]))
        self.project = unpack(_read(request.inputs["project.tar"]))
        state = request.inputs.get("state.tar")
        self.state = unpack(_read(state)) if state is not None else {}

    async def ask(self, tool: str, **arguments: object) -> ToolReply:
        """The reply of a tool; as in the real line, an error is a reply."""
        self._count += 1
        call = GatewayCall(self._count, f"coding.{tool}", arguments)
        try:
            return await self._call_tool(call)
        except EverturnError as error:
            return ToolReply(call.id, False, None, "tool_error", str(error))

    async def report(self, *reported: Mapping[str, object]) -> ToolReply:
        return await self.ask("report", events=list(reported))

    async def save(
        self, changed: Mapping[str, bytes] | None = None, deleted: tuple[str, ...] = (), **about: object
    ) -> ToolReply:
        said = {"session": SESSION, "deleted": list(deleted), "left_out": [], "left_out_count": 0, **about}
        files = {"state.json": json.dumps(said).encode(), "home/session.jsonl": b"{}\n"}
        files |= {f"changed/{path}": body for path, body in (changed or {}).items()}
        return await self.send(pack(files))

    async def send(self, data: bytes, size: int = 5_000) -> ToolReply:
        """A state in parts, as the driver sends it."""
        reply = ToolReply(0, True)
        for at in range(0, len(data), size):
            reply = await self.ask("save", part=data[at : at + size], is_last=at + size >= len(data))
        return reply


class PlayedSandbox:
    """Runs what a test plays in place of the driver. A run can be stopped, and can break."""

    posture = None
    limits = RunLimits()

    def __init__(self, play: Play) -> None:
        self.play = play
        self.drivers: list[Driver] = []

    async def run(self, request: RunRequest, call_tool: ToolCaller, *, stop: asyncio.Event | None = None) -> RunResult:
        driver = Driver(request, call_tool)
        self.drivers.append(driver)
        playing = asyncio.ensure_future(self.play(driver))
        stopping = asyncio.create_task((stop or asyncio.Event()).wait())
        try:
            await asyncio.wait({playing, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if playing.done():
                await playing
        except RuntimeError as broken:
            return build_broken(request, RunLimits(), RunError("sandbox_failed", str(broken), "sandbox"))
        finally:
            playing.cancel()
            stopping.cancel()
        # A result without contents: the driver has no outputs.
        empty = build_refused(request, RunLimits(), RunError("cancelled", "", "program"))
        return replace(empty, ok=playing.done() and not playing.cancelled())


class Team:
    """A conversation with a project, and workers whose agent is played."""

    def __init__(self, *scripts: Any, play: Play) -> None:
        self.bench = Bench(*(scripts or (RUN, answer("Done."))))
        self.sandbox = PlayedSandbox(play)
        self.changes = MemoryWorkspaceChanges(self.bench.platform)

    def hire(self) -> BenchWorker:
        history = WorkspaceHistory(MemoryArtifacts(self.bench.platform))
        agent = CodingAgent(
            "claude-code", "coding", ExecutionProfile(timeout_s=60.0), lambda _turn, _run: serve_nothing
        )
        load = partial(load_project_files, self.changes)
        tool = RunAgentTool(self.sandbox, self.bench.objects, history, load, agent)
        self.bench.registry = ToolRegistry([tool])
        return self.bench.hire()

    async def work(self) -> None:
        await self.hire().work()

    async def find_files(self) -> dict[str, bytes]:
        """The project as the next turn finds it."""
        (turn, *_) = self.bench.turn_rows
        turns = await self.changes.load(ANN, turn.conversation_id)
        return {path: self.bench.objects.stored[each.object_key] for path, each in fold_project(turns).items()}

    @property
    def results(self) -> list[ToolResultBody]:
        """Of the calls of the loop."""
        found = [block.body for block in self.bench.blocks if isinstance(block.body, ToolResultBody)]
        return [body for body in found if body.tool_id == TOOL]

    @property
    def files(self) -> dict[str, Artifact]:
        """What the only call has changed, by path below `files/`."""
        return {each.path.partition("/files/")[2]: each for each in self.results[-1].artifacts}


async def serve_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """The model server of an agent that asks it nothing."""
    del reader
    writer.close()


def began(number: int, tool: str = "Edit", **more: object) -> dict[str, object]:
    return {"kind": "began", "id": f"t{number}", "tool": tool, "input": {"file": "a.py"}, **more}


def ended(number: int, **more: object) -> dict[str, object]:
    return {"kind": "ended_call", "id": f"t{number}", "ok": True, "text": "Changed.", **more}


def finish(text: str = "All fixed.") -> dict[str, object]:
    return {"kind": "ended", "text": text}


def pack(files: Mapping[str, bytes]) -> bytes:
    sink = io.BytesIO()
    with tarfile.open(fileobj=sink, mode="w") as archive:
        for name, body in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(body)
            archive.addfile(member, io.BytesIO(body))
    return sink.getvalue()


def unpack(data: bytes) -> dict[str, bytes]:
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        return {member.name: archive.extractfile(member).read() for member in archive}  # type: ignore[union-attr]


def _read(content: object) -> bytes:
    assert isinstance(content, bytes)
    return content


async def fix(driver: Driver) -> None:
    """What an agent does in a good run."""
    await driver.report({"kind": "text", "text": "I look."}, began(1), ended(1, diff="-a\n+b"))
    await driver.save({"a.py": b"fixed", "tests/test_a.py": b"test"})
    await driver.report(finish())


async def test_the_changes_of_an_agent_are_files_of_the_turn() -> None:
    team = Team(play=fix)
    await team.bench.say("The test fails.")

    await team.work()

    (result,) = team.results
    assert result.status == "ok"
    assert result.text.startswith("All fixed.")
    assert {path: team.bench.objects.stored[each.object_key] for path, each in team.files.items()} == {
        "a.py": b"fixed",
        "tests/test_a.py": b"test",
    }
    assert team.sandbox.drivers[0].order["task"] == "Fix the test."
    assert team.sandbox.drivers[0].request.inputs["driver/bootstrap.py"]
    await check_conversation(team.bench)
    assert [each.outcome for each in team.bench.exits] == [Outcome.COMPLETED]


async def test_each_call_of_the_agent_is_a_step_that_can_be_read_back() -> None:
    team = Team(play=fix)
    await team.bench.say("The test fails.")

    await team.work()

    calls = [block for block in team.bench.blocks if block.type is BlockType.TOOL_CALL]
    parent, step = calls
    assert (step.body.tool_id, step.body.parent) == ("claude_code.Edit", str(parent.call_id))
    inner = [block.body for block in team.bench.blocks if isinstance(block.body, ToolResultBody)]
    assert [(body.tool_id, body.status, body.data) for body in inner if body.parent] == [
        ("claude_code.Edit", "ok", {"diff": "-a\n+b"})
    ]
    shown = [each.data for each in await team.bench.published()]
    steps = [(each.tool_id, each.status) for each in shown if isinstance(each, ChatStep)]
    assert steps.index(("claude_code.Edit", "started")) < steps.index(("claude_code.Edit", "completed"))
    assert "I look." in [each.text for each in shown if isinstance(each, ChatTool)]


async def test_the_next_task_continues_the_session_on_the_project_as_it_is_then() -> None:
    team = Team(RUN, answer("Done."), RUN, answer("Done."), play=fix)
    await team.bench.say("The test fails.")
    await team.work()
    await team.bench.say("And now the docs.")
    await team.work()

    first, second = team.sandbox.drivers
    assert (first.project, first.state) == ({}, {})
    assert second.project == {"a.py": b"fixed", "tests/test_a.py": b"test"}
    assert second.state["home/session.jsonl"] == b"{}\n"
    assert json.loads(second.state["state.json"])["session"] == SESSION
    assert not [name for name in second.state if name.startswith("changed/")]
    assert second.order["task"] == "Fix the test."


async def test_another_worker_continues_with_the_files_and_steps_of_one_that_was_lost() -> None:
    saved = asyncio.Event()

    async def play(driver: Driver) -> None:
        if not driver.state:
            await driver.report(began(1), ended(1), began(2))
            await driver.save({"a.py": b"half"})
            await driver.report(ended(2))
            saved.set()
            await asyncio.Event().wait()
        await driver.report(began(3), ended(3))
        await driver.save({"a.py": b"whole"})
        await driver.report(finish())

    team = Team(play=play)
    await team.bench.say("The test fails.")
    lost, heir = team.hire(), team.hire()
    working = asyncio.create_task(lost.work())
    await saved.wait()
    lost.gate.dead.set()
    await working
    team.bench.expire_lease()

    await heir.work()

    first, second = team.sandbox.drivers
    assert "The machine on which you worked was lost" in second.order["task"]
    assert second.order["task"].endswith(first.order["task"])
    assert second.state["changed/a.py"] == b"half"
    assert json.loads(second.state["state.json"])["session"] == SESSION
    assert team.bench.objects.stored[team.files["a.py"].object_key] == b"whole"
    inner = [block.body for block in team.bench.blocks if isinstance(block.body, ToolResultBody) and block.body.parent]
    assert [body.status for body in inner] == ["ok", "cancelled", "ok"]
    await check_conversation(team.bench)


async def test_a_worker_that_has_lost_its_lease_changes_nothing_for_its_successor() -> None:
    late, resumed = asyncio.Event(), asyncio.Event()

    async def play(driver: Driver) -> None:
        if len(team.sandbox.drivers) == 1:
            await driver.save({"a.py": b"first"})
            late.set()
            await resumed.wait()
            await driver.save({"a.py": b"stale"})
            return
        await driver.save({"b.py": b"second"})
        await driver.report(finish())
        resumed.set()

    team = Team(RUN, answer("Done."), RUN, answer("Done."), play=play)
    await team.bench.say("The test fails.")
    stale, heir = team.hire(), team.hire()
    working = asyncio.create_task(stale.work())
    await late.wait()
    stale.gate.freeze()
    team.bench.expire_lease()
    await heir.work()
    stale.gate.thaw()
    await working

    key = team.results[0].data["code_agent"]["state"]  # type: ignore[index]
    assert b"second" in team.bench.objects.stored[key]
    assert b"stale" not in team.bench.objects.stored[key]
    assert list(team.files) == ["b.py"]


@pytest.mark.parametrize("kind", [SignalKind.STEER, SignalKind.CANCEL])
async def test_a_stop_reaches_the_driver_which_saves_its_work(kind: SignalKind) -> None:
    async def play(driver: Driver) -> None:
        await driver.report(began(1))
        asked = await driver.ask("wait")
        assert asked.value == "stop"
        await driver.save({"a.py": b"half"})
        await driver.report(finish("Half is done."))

    team = Team(RUN, answer("Done."), answer("Done."), play=play)
    await team.bench.say("The test fails.")
    worker = team.hire()
    working = asyncio.create_task(worker.work())
    await until(lambda: bool(team.sandbox.drivers))
    await team.bench.signal(kind, "Only the first.")
    await working

    assert team.bench.objects.stored[team.files["a.py"].object_key] == b"half"
    assert "Half is done." in team.results[0].text
    await check_conversation(team.bench)


async def test_a_driver_that_ignores_the_stop_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_agent, "STOP_WITHIN_S", 0.05)

    async def play(driver: Driver) -> None:
        await driver.save({"a.py": b"half"})
        await asyncio.Event().wait()

    team = Team(RUN, answer("Done."), play=play)
    await team.bench.say("The test fails.")
    working = asyncio.create_task(team.hire().work())
    await until(lambda: bool(team.sandbox.drivers))
    await team.bench.signal(SignalKind.CANCEL)
    await working

    assert [each.outcome for each in team.bench.exits] == [Outcome.CANCELLED]
    assert list(team.files) == ["a.py"]


async def test_a_file_that_the_agent_deletes_is_deleted_in_the_project() -> None:
    async def play(driver: Driver) -> None:
        if driver.project:
            await driver.save(deleted=("a.py", "never/there.py", "../outside"))
        else:
            await driver.save({"a.py": b"one", "b.py": b"two"})
        await driver.report(finish())

    team = Team(RUN, answer("Done."), RUN, answer("Done."), play=play)
    await team.bench.say("Write two files.")
    await team.work()
    await team.bench.say("Delete one.")
    await team.work()

    assert {path: (each.mime, each.removed) for path, each in team.files.items()} == {"a.py": (WHITEOUT_MIME, True)}


async def fail_early(driver: Driver) -> None:
    await driver.save({"a.py": b"half"})
    await driver.report({"kind": "failed", "text": "The model server refused the request."})


async def break_early(driver: Driver) -> None:
    await driver.save({"a.py": b"half"})
    raise RuntimeError("The broker has ended.")


async def end_silently(driver: Driver) -> None:
    await driver.save({"a.py": b"half"})


@pytest.mark.parametrize(
    ("play", "said"),
    [
        (fail_early, "The agent failed: The model server refused the request."),
        (break_early, "The broker has ended."),
        (end_silently, "The agent did not end its work."),
    ],
)
async def test_work_is_kept_however_the_agent_ends(play: Play, said: str) -> None:
    team = Team(play=play)
    await team.bench.say("The test fails.")

    await team.work()

    (result,) = team.results
    assert (result.status, said in result.text, list(team.files)) == ("error", True, ["a.py"])
    await check_conversation(team.bench)


BAD_EVENTS = [
    [{"kind": "answer", "text": "x"}],
    [{"kind": "text", "text": "x" * 20_001}],
    [{"kind": "began", "id": "1", "tool": "Ed\nit", "input": {}}],
    [{"kind": "text", "text": "x"}] * 201,
    {"kind": "text"},
    None,
]


@pytest.mark.parametrize("bad", BAD_EVENTS)
async def test_events_that_are_none_are_refused(bad: object) -> None:
    replies: list[ToolReply] = []

    async def play(driver: Driver) -> None:
        replies.append(await driver.ask("report", events=bad))
        await driver.report(finish())

    team = Team(play=play)
    await team.bench.say("The test fails.")
    await team.work()

    assert [reply.ok for reply in replies] == [False]
    assert [result.status for result in team.results] == ["ok"]


BAD_STATES = [
    b"not a tar",
    pack({"changed/a.py": b"x"}),
    pack({"state.json": b"[]"}),
    pack({"state.json": b"{" * 100_000}),
]


def pack_holes() -> bytes:
    """A file of 100 MB in a block."""
    member = tarfile.TarInfo("changed/large.bin")
    member.type = tarfile.GNUTYPE_SPARSE
    block = bytearray(member.tobuf(tarfile.GNU_FORMAT))
    block[483:495] = b"%011o\0" % 100_000_000
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    return bytes(block) + pack({"state.json": b"[]"})


BAD_STATES += [gzip.compress(pack({"state.json": b"{}", "changed/a": bytes(50_000_000)})), pack_holes()]


@pytest.mark.parametrize("bad", BAD_STATES)
async def test_a_damaged_state_costs_only_the_changes(bad: bytes) -> None:
    async def play(driver: Driver) -> None:
        await driver.send(bad)
        await driver.report(finish())

    team = Team(RUN, answer("Done."), RUN, answer("Done."), play=play)
    await team.bench.say("The test fails.")
    await team.work()
    await team.bench.say("Again.")
    await team.work()

    assert [(result.status, result.artifacts) for result in team.results] == [("ok", ()), ("ok", ())]
    assert "state of the coding agent" in team.results[0].text
    assert team.sandbox.drivers[1].state == {}


async def test_names_that_no_project_can_have_are_not_kept() -> None:
    async def play(driver: Driver) -> None:
        bad = {"../x": b"", "/etc/x": b"", ".git/hooks/post-commit": b"", "a/.GIT/config": b"", "b\x07": b""}
        await driver.save({**bad, "good.py": b"x"})
        await driver.report(finish())

    team = Team(play=play)
    await team.bench.say("The test fails.")
    await team.work()

    assert list(team.files) == ["good.py"]
    assert team.results[0].text.count("Not kept") == 5


async def test_a_state_that_is_too_large_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_agent, "MAX_STATE_BYTES", 30_000)
    replies: list[ToolReply] = []

    async def play(driver: Driver) -> None:
        replies.append(await driver.save({"a.py": b"small"}))
        replies.append(await driver.save({"a.py": bytes(40_000)}))
        await driver.report(finish())

    team = Team(play=play)
    await team.bench.say("The test fails.")
    await team.work()

    assert [reply.ok for reply in replies] == [True, False]
    assert team.bench.objects.stored[team.files["a.py"].object_key] == b"small"


async def test_steps_beyond_the_limit_are_counted_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "MAX_STEPS", 2)

    async def play(driver: Driver) -> None:
        await driver.report(*(began(number) for number in range(5)))
        await driver.report(*(ended(number) for number in range(5)))
        await driver.report(finish())

    team = Team(play=play)
    await team.bench.say("The test fails.")
    await team.work()

    inner = [block for block in team.bench.blocks if block.type is BlockType.TOOL_CALL]
    assert len(inner) == 3


async def test_a_store_that_is_down_loses_no_work(monkeypatch: pytest.MonkeyPatch) -> None:
    async def play(driver: Driver) -> None:
        team.bench.objects.down = True
        reply = await driver.save({"a.py": b"x"})
        assert reply.ok
        team.bench.objects.down = False
        await driver.report(finish())

    team = Team(play=play)
    await team.bench.say("The test fails.")
    await team.work()

    assert list(team.files) == ["a.py"]
    assert "state" not in team.results[0].data["code_agent"]  # type: ignore[index]


@pytest.mark.parametrize("imported", [True, False])
async def test_what_an_agent_says_of_an_imported_project_is_text_of_third_parties(imported: bool) -> None:
    team = Team(RUN, answer("Done."), RUN, answer("Done."), play=fix)
    await team.bench.say("Write a file.")
    await team.work()
    if imported:
        rows = team.bench.platform.conversations[team.bench.conversation_id].artifacts
        origin = Origin("https://git.example.com/shop", "a" * 40)
        rows[:] = [row.model_copy(update={"description": origin.mark}) for row in rows]
    await team.bench.say("Change it.")
    await team.work()

    assert [result.untrusted for result in team.results] == [False, imported]


async def test_arguments_of_any_size_are_shortened(monkeypatch: pytest.MonkeyPatch) -> None:
    large = {"text": "x" * 100_000, "raw": b"\xff\x00", "list": [{"a": "y" * 400}] * 1_000}

    async def play(driver: Driver) -> None:
        await driver.report({**began(1), "input": large}, ended(1))
        assert (await driver.save({"a.py": b"x"})).ok
        await driver.report(finish())

    team = Team(play=play)
    await team.bench.say("The test fails.")
    await team.work()

    key = team.results[0].data["code_agent"]["state"]  # type: ignore[index]
    assert len(team.bench.objects.stored[key]) < 40_000
    assert list(team.files) == ["a.py"]
