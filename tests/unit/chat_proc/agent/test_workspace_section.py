"""[WORKSPACE] in real turns."""

from types import SimpleNamespace
from typing import Any, NoReturn

from turn_harness.harness import Bench
from turn_harness.replies import answer, call

from chat_proc.agent.prompting import WorkspaceSection
from chat_proc.workspace.loading import WorkspaceHistory
from everturn.core.errors import Unavailable
from everturn.files.model import Artifact
from everturn.models.port import ModelRequest, TextPart
from everturn_testing.files.stored_files import OWNER, StoredFiles
from everturn_testing.timeline import TimelineBuilder


def section(request: ModelRequest) -> str:
    last = [part.text for message in request.messages for part in message.parts if isinstance(part, TextPart)][-1]
    return last.partition("[WORKSPACE]\n")[2].partition("\n\n")[0]


async def play(bench: Bench) -> list[str]:
    for text in ("Write it.", "Go on."):
        await bench.say(text)
        await bench.work()
    return [section(request) for request in bench.model.requests]


def write_twice() -> Bench:
    return Bench(call("react.write", {"path": "files/a.md", "content": "x"}), answer("Done."), answer("Seen."))


async def test_a_file_is_local_in_its_turn_and_to_be_checked_out_in_the_next() -> None:
    bench = write_twice()

    before, after, later = await play(bench)

    turn_id = bench.blocks[0].turn_id
    assert "nothing written" in before
    assert f"fi:{turn_id}.files/a.md (text/markdown, 1 bytes)" in after
    assert "a.md" not in later
    assert f"- fi:{turn_id}.files/ (1 files)" in later


class NoHistory(WorkspaceHistory):
    """Rows that can't be read."""

    async def load_turns(self, *args: object, **kwargs: object) -> NoReturn:
        raise Unavailable("down")


class CountedHistory(WorkspaceHistory):
    """Counts how often the turn's own rows are read."""

    reads = 0

    async def load_folder(self, *args: Any, **kwargs: Any) -> tuple[Artifact, ...]:
        self.reads += 1
        return await super().load_folder(*args, **kwargs)


async def test_the_lines_are_loaded_once_for_the_same_blocks() -> None:
    timeline, history = TimelineBuilder(), CountedHistory(StoredFiles().artifacts)
    timeline.start_turn("turn_2", "Go")
    blocks = timeline.blocks[1:]  # without the header, whose blocks a summary has replaced
    lease = SimpleNamespace(principal=OWNER, conversation_id="conv_1")
    lines = WorkspaceSection(
        history, SimpleNamespace(had_files=True, turn_id=timeline.turn_id, blocks=blocks, lease=lease)
    )

    assert await lines.load_lines() == await lines.load_lines()
    assert history.reads == 1

    timeline.start_round()
    blocks.append(timeline.blocks[-1])
    await lines.load_lines()
    assert history.reads == 2


async def test_a_turn_continues_if_the_history_is_unavailable() -> None:
    timeline = TimelineBuilder()
    timeline.start_turn("turn_2", "Go")
    lease = SimpleNamespace(had_files=True, principal=OWNER, conversation_id="conv_1")
    turn = SimpleNamespace(had_files=True, turn_id=timeline.turn_id, blocks=timeline.blocks, lease=lease)

    lines = await WorkspaceSection(NoHistory(StoredFiles().artifacts), turn).load_lines()

    assert lines[-1] == "earlier turns: their files can't be listed now"
