"""The driver's own parts: what it keeps of the folders, and how it talks to the worker. No agent is needed."""

import asyncio
import io
import json
import os
import sys
import tarfile
from collections.abc import Mapping
from importlib import import_module
from importlib.resources import files as resources
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chat_proc.tools.coding.project_files import keep_home, read_changes

FOLDER = str(resources("chat_proc.tools.coding"))


# The driver is a package of the sandbox, where nothing of ours is installed.
sys.path.append(FOLDER)
link, state = (import_module(f"driver.{name}") for name in ("link", "state"))
sys.path.remove(FOLDER)


def pack(files: Mapping[str, bytes]) -> bytes:
    sink = io.BytesIO()
    with tarfile.open(fileobj=sink, mode="w") as archive:
        for name, body in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(body)
            archive.addfile(member, io.BytesIO(body))
    return sink.getvalue()


def open_state(folder: Path, given: Mapping[str, bytes], left: bytes | None = None) -> Any:
    """A State over fresh folders, with the project as it was given."""

    folder.mkdir(exist_ok=True)
    (folder / "project.tar").write_bytes(pack(given))
    if left is not None:
        (folder / "state.tar").write_bytes(left)
    opened = state.State(folder / "project", folder / "home")
    opened.unpack(folder / "project.tar", folder / "state.tar")
    return opened


def list_files(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


NAMES = st.sampled_from(["a.py", "b/c.py", "b/d.txt", "e/f/g", "h"])
FILES = st.dictionaries(NAMES, st.binary(max_size=5), max_size=5)


@given(given=FILES, left=FILES)
def test_another_machine_gets_the_project_as_it_was_left(
    tmp_path_factory: pytest.TempPathFactory, given: dict[str, bytes], left: dict[str, bytes]
) -> None:
    folder = tmp_path_factory.mktemp("state")
    opened = open_state(folder / "one", given)
    opened.session = "s1"
    project = folder / "one" / "project"
    for path in given:
        (project / path).unlink()
    for path, body in left.items():
        (project / path).parent.mkdir(parents=True, exist_ok=True)
        (project / path).write_bytes(body)
    (folder / "one" / "home" / "session.jsonl").write_bytes(b"{}")

    data = opened.pack() or b""
    changes = read_changes(data)
    assert (changes.session, changes.refused) == ("s1", ())
    assert dict(changes.written) == {path: body for path, body in left.items() if given.get(path) != body}
    assert sorted(changes.deleted) == sorted(set(given) - set(left))

    again = open_state(folder / "two", given, data)
    assert list_files(folder / "two" / "project") == left
    assert list_files(folder / "two" / "home") == {"session.jsonl": b"{}"}
    assert again.session == "s1"

    later = open_state(folder / "three", left, keep_home(data))
    assert list_files(folder / "three" / "project") == left
    assert later.session == "s1"
    assert read_changes(later.pack() or b"").written == {}


def test_what_has_not_changed_is_not_packed_again(tmp_path: Path) -> None:
    opened = open_state(tmp_path, {"a.py": b"1"})

    assert opened.pack() is not None
    assert opened.pack() is None
    (tmp_path / "project" / "a.py").write_bytes(b"2")
    assert opened.pack() is not None
    opened.forget_packed()
    assert opened.pack() is not None


def test_only_files_of_the_project_are_changes(tmp_path: Path) -> None:
    opened = open_state(tmp_path, {"a.py": b"1"})
    project = tmp_path / "project"
    for name in (".git/HEAD", "node_modules/x.js", "__pycache__/a.pyc", "src/.venv/x"):
        (project / name).parent.mkdir(parents=True)
        (project / name).write_bytes(b"x")
    os.symlink("/etc/passwd", project / "link")
    os.mkfifo(project / "pipe")

    changes = read_changes(opened.pack())

    assert (dict(changes.written), changes.deleted) == ({}, ())


def test_what_is_too_large_is_left_out_and_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:

    monkeypatch.setattr(state, "MAX_FILE_BYTES", 10)
    monkeypatch.setattr(state, "MAX_HOME_BYTES", 10)
    opened = open_state(tmp_path, {})
    (tmp_path / "project" / "big.bin").write_bytes(bytes(11))
    (tmp_path / "project" / "small.txt").write_bytes(b"x")
    (tmp_path / "home" / "old.log").write_bytes(bytes(8))
    os.utime(tmp_path / "home" / "old.log", (1, 1))
    (tmp_path / "home" / "session.jsonl").write_bytes(bytes(8))

    data = opened.pack()

    changes = read_changes(data)
    assert dict(changes.written) == {"small.txt": b"x"}
    assert changes.refused == ("'big.bin' (too large, or one of too many)",)
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        assert [name for name in archive.getnames() if name.startswith("home/")] == ["home/session.jsonl"]


class PlayedWorker:
    """The tools of a run."""

    def __init__(self) -> None:
        self.groups: list[list[dict[str, Any]]] = []
        self.states: list[bytes] = []
        self.stop = asyncio.Event()
        self.failing = False

    async def report(self, *, events: list[dict[str, Any]]) -> None:
        self.groups.append(json.loads(json.dumps(events)))

    async def ask(self, *, tool: str, title: str, input: dict[str, Any]) -> dict[str, Any]:
        return {"allow": tool != "Bash", "message": title}

    async def save(self, *, part: bytes, is_last: bool) -> None:
        if self.failing:
            raise ConnectionError("The store is down.")
        self.states.append(part)

    async def wait(self) -> str:
        await self.stop.wait()
        return "stop"

    @property
    def events(self) -> list[dict[str, Any]]:
        return [event for group in self.groups for event in group]


async def test_texts_are_joined_and_events_are_sent_in_groups(tmp_path: Path) -> None:

    worker = PlayedWorker()
    async with link.Link(worker, open_state(tmp_path, {})) as line:
        for word in ("I ", "look ", "at it."):
            line.tell("text", text=word)
        line.tell("thinking", text="x" * 30_000)
        for number in range(450):
            line.tell("began", id=str(number), tool="Read", input={}, parent="")
        await line.watch(asyncio.create_task(_return("Done.")))

    assert worker.events[0] == {"kind": "text", "text": "I look at it."}
    assert len(worker.events[1]["text"]) == 20_000
    assert max(map(len, worker.groups)) == 200
    assert [event["kind"] for event in worker.events[-1:]] == ["ended"]
    assert len(worker.events) == 453


async def _return(text: str) -> str:
    return text


async def test_a_stop_gives_the_agent_time_and_then_ends_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:

    monkeypatch.setattr(link, "STOP_WITHIN_S", 0.05)
    worker = PlayedWorker()
    interrupted: list[bool] = []

    async def interrupt() -> None:
        interrupted.append(True)

    async def work(line: Any) -> str:
        return await link.stop_with(line, asyncio.Event().wait(), interrupt)

    async with link.Link(worker, open_state(tmp_path, {})) as line:
        running = asyncio.create_task(work(line))
        worker.stop.set()
        await line.watch(running)

    assert interrupted == [True]
    assert worker.events[-1] == {"kind": "ended", "text": ""}
    assert worker.states


async def test_an_agent_that_fails_is_an_event(tmp_path: Path) -> None:

    async def fail() -> str:
        raise FileNotFoundError("no such agent")

    worker = PlayedWorker()
    async with link.Link(worker, open_state(tmp_path, {})) as line:
        await line.watch(asyncio.create_task(fail()))

    assert worker.events[-1] == {"kind": "failed", "text": "FileNotFoundError: no such agent"}


async def test_work_that_can_not_be_saved_now_is_saved_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:

    monkeypatch.setattr(link, "SAVE_EVERY_S", 0.0)
    worker = PlayedWorker()
    worker.failing = True
    async with link.Link(worker, open_state(tmp_path, {})) as line:
        await line.checkpoint()
        worker.failing = False
        await line.watch(asyncio.create_task(_return("Done.")))

    assert "could not be saved: The store is down." in worker.events[0]["text"]
    assert len(worker.states) == 1


async def test_what_the_worker_denies_is_denied(tmp_path: Path) -> None:

    async with link.Link(PlayedWorker(), open_state(tmp_path, {})) as line:
        assert await line.ask("Edit", "Edit a.py", {}) == (True, "Edit a.py")
        assert await line.ask("Bash", "Run rm", {}) == (False, "Run rm")
