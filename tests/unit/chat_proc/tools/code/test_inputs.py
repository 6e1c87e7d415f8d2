"""Inputs of a program: what is local, and what of other turns it names, within limits."""

import pytest

from chat_proc.catalog.tool import ToolContext
from chat_proc.tools.code import inputs as inputs_module
from chat_proc.tools.code.inputs import InputLoader, Inputs
from chat_proc.tools.stored_files import load_local
from chat_proc.tools.workspace.checkout import PullTool
from chat_proc.workspace.loading import WorkspaceHistory
from everturn.core.errors import Unavailable
from everturn.core.ids import ConversationId
from everturn.files.model import ArtifactKind
from everturn_testing.files.stored_files import OWNER
from everturn_testing.source_pool import MemorySourcePool
from everturn_testing.timeline import NOW, TimelineBuilder, build_file
from everturn_testing.turns.live_turn import RecordingTurn

MIB = 1024 * 1024


@pytest.fixture
def timeline() -> TimelineBuilder:
    timeline = TimelineBuilder()
    timeline.start_turn("turn_2", "Go")
    return timeline


@pytest.fixture
def load(stored, objects):
    history = WorkspaceHistory(stored.artifacts)

    async def run(timeline: TimelineBuilder, program: str) -> Inputs:
        context = ToolContext(
            OWNER,
            ConversationId("conv_1"),
            timeline.turn_id,
            1,
            timeline.blocks,
            NOW,
            MemorySourcePool(),
            RecordingTurn(),
        )
        workspace = await load_local(history, context)
        return await InputLoader(history, objects).load(context, workspace, [program])

    return run


def produce(timeline: TimelineBuilder, objects, *sizes: int) -> None:
    for number, size in enumerate(sizes):
        data = bytes([number]) * size
        file = build_file("turn_2", f"f{number}.bin", data, kind=ArtifactKind.OUTPUT)
        objects.stored[file.object_key] = data
        timeline.result(f"call_{number}", "react.write", "ok", file)


async def test_what_the_turn_has_lies_under_its_path(load, stored, play) -> None:
    csv = stored.put("turn_2", "sales.csv", b"a,b", kind=ArtifactKind.ATTACHMENT)
    chart = stored.put("turn_2", "chart.png", b"png", kind=ArtifactKind.OUTPUT)
    stored.put("turn_1", "pulled.py", b"p")
    stored.put("turn_1", "other.py", b"o")
    timeline = TimelineBuilder()
    timeline.start_turn("turn_2", "Look", csv)
    timeline.result("call_1", "exec_tools.execute_code_python", "ok", chart)
    await play(PullTool(WorkspaceHistory(stored.artifacts)), timeline, {"paths": ["fi:turn_1.files/pulled.py"]})

    loaded = await load(timeline, "")

    assert loaded.files == {
        "turn_2/attachments/sales.csv": b"a,b",
        "turn_2/outputs/chart.png": b"png",
        "turn_1/files/pulled.py": b"p",
    }
    assert loaded.describe_left_out() == loaded.describe_unknown() == ""


async def test_files_of_earlier_turns_are_there_when_the_program_names_them(load, stored, timeline) -> None:
    stored.put("turn_1", "sales 1.csv", b"a", kind=ArtifactKind.ATTACHMENT)
    stored.put("turn_1", "other.csv", b"b", kind=ArtifactKind.ATTACHMENT)
    stored.put("turn_7", "x.csv", b"c", kind=ArtifactKind.OUTPUT, conversation_id="conv_2")

    loaded = await load(timeline, 'read("turn_1/attachments/sales 1.csv", "conv_2/turn_7/outputs/x.csv")')

    assert loaded.files == {"turn_1/attachments/sales 1.csv": b"a", "conv_2/turn_7/outputs/x.csv": b"c"}


async def test_a_wrong_name_gets_a_suggestion(load, stored, timeline) -> None:
    stored.put("turn_1", "sales.csv", b"a")

    loaded = await load(
        timeline, '"turn_1/files/sale.csv" "turn_0/files/x/y.csv" "turn_2/outputs/new" "conv_9/turn_0/files/a.py"'
    )

    assert loaded.describe_unknown().split("\n") == [
        "The program names turn_1/files/sale.csv, which does not exist. Did you mean turn_1/files/sales.csv?",
        "The program names turn_0/files/x/y.csv, which does not exist. To list the files of that turn: "
        'react.pull {"paths": ["fi:turn_0.files/"]}.',
        "The program names conv_9/turn_0/files/a.py, which does not exist. To list the files of that turn: "
        'react.pull {"paths": ["fi:conv_9.turn_0.files/"]}.',
    ]
    assert loaded.files == {}


async def test_named_files_come_first_if_not_all_fit(load, objects, timeline) -> None:
    produce(timeline, objects, 20 * MIB, 20 * MIB, 20 * MIB)

    loaded = await load(timeline, 'open("turn_2/outputs/f0.bin")')

    assert list(loaded.files) == ["turn_2/outputs/f0.bin", "turn_2/outputs/f2.bin"]
    assert "Not given to the program: turn_2/outputs/f1.bin (all files together" in loaded.describe_left_out()


async def test_the_number_of_files_is_bounded(load, objects, timeline) -> None:
    produce(timeline, objects, *[1] * (inputs_module.MAX_INPUT_FILES + 5))

    loaded = await load(timeline, "")

    assert len(loaded.files) == inputs_module.MAX_INPUT_FILES
    assert len(loaded.left_out) == 5


async def test_an_unavailable_file_is_left_out_with_the_reason(load, timeline) -> None:
    deep = build_file("turn_2", "/".join(["x" * 50] * 6), b"x", kind=ArtifactKind.FILE)
    gone = build_file("turn_2", "gone.txt", b"gone", kind=ArtifactKind.FILE)
    timeline.result("call_1", "react.write", "ok", deep, gone)

    loaded = await load(timeline, "")

    assert loaded.files == {}
    assert {path for path, _ in loaded.left_out} == {deep.path, gone.path}


async def test_the_model_reads_no_address_of_a_store_that_fails(load, timeline, objects, monkeypatch) -> None:
    produce(timeline, objects, 5)

    async def refuse(*_: object, **__: object) -> bytes:
        raise Unavailable('S3: Could not connect to the endpoint URL: "http://minio.internal:9000/runs"')

    monkeypatch.setattr(objects, "load", refuse)
    loaded = await load(timeline, "")

    assert loaded.left_out == (("turn_2/outputs/f0.bin", "the file store does not answer"),)


def test_a_long_list_of_what_is_missing_is_cut() -> None:
    described = Inputs({}, tuple((f"f{number}", "too many") for number in range(30))).describe_left_out()

    assert described.count("\n") == 10
    assert described.endswith("20 more files.")
