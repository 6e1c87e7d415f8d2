"""Inputs of a program: what it names first, then the newest, within limits."""

from chat_proc.tools.code import inputs as inputs_module
from chat_proc.tools.code.inputs import Inputs, load_inputs
from everturn.model.artifacts import ArtifactKind
from everturn.testing.timelines import TimelineBuilder, build_file

MIB = 1024 * 1024


def play(objects, *sizes: int) -> TimelineBuilder:
    timeline = TimelineBuilder()
    timeline.start_turn("turn_1", "Go")
    for number, size in enumerate(sizes):
        data = bytes([number]) * size
        file = build_file("turn_1", f"f{number}.bin", data, kind=ArtifactKind.OUTPUT)
        objects.stored[file.object_key] = data
        timeline.result(f"call_{number}", "react.write", "ok", file)
    return timeline


async def test_attachments_and_produced_files_lie_under_their_paths(objects) -> None:
    csv = build_file("turn_1", "sales.csv", b"a,b", mime="text/csv")
    chart = build_file("turn_1", "chart.png", b"png", kind=ArtifactKind.OUTPUT)
    objects.stored = {csv.object_key: b"a,b", chart.object_key: b"png"}
    timeline = TimelineBuilder()
    timeline.start_turn("turn_1", "Look", csv)
    timeline.result("call_1", "exec_tools.execute_code_python", "ok", chart)
    timeline.start_turn("turn_2", "Again")

    loaded = await load_inputs(objects, timeline.blocks, "")

    assert loaded.files == {"turn_1/attachments/sales.csv": b"a,b", "turn_1/outputs/chart.png": b"png"}
    assert loaded.describe_left_out() == ""


async def test_when_not_all_fits_what_the_program_names_goes_first_then_the_newest(objects) -> None:
    timeline = play(objects, 20 * MIB, 20 * MIB, 20 * MIB)

    loaded = await load_inputs(objects, timeline.blocks, 'open("turn_1/outputs/f0.bin")')

    assert list(loaded.files) == ["turn_1/outputs/f0.bin", "turn_1/outputs/f2.bin"]
    assert "Not given to the program: turn_1/outputs/f1.bin (all files together" in loaded.describe_left_out()


async def test_the_number_of_files_is_bounded(objects) -> None:
    timeline = play(objects, *[1] * (inputs_module.MAX_INPUT_FILES + 5))

    loaded = await load_inputs(objects, timeline.blocks, "")

    assert len(loaded.files) == inputs_module.MAX_INPUT_FILES
    assert len(loaded.left_out) == 5


async def test_a_file_that_can_not_be_had_or_named_is_left_out_with_the_reason(objects) -> None:
    deep = build_file("turn_1", "/".join(["x" * 50] * 6), b"x", kind=ArtifactKind.FILE)
    gone = build_file("turn_1", "gone.txt", b"gone", kind=ArtifactKind.FILE)
    timeline = TimelineBuilder()
    timeline.start_turn("turn_1", "Go")
    timeline.result("call_1", "react.write", "ok", deep, gone)

    loaded = await load_inputs(objects, timeline.blocks, "")

    assert loaded.files == {}
    assert {path for path, _ in loaded.left_out} == {deep.path, gone.path}


def test_a_long_list_of_what_is_missing_is_cut() -> None:
    described = Inputs({}, tuple((f"f{number}", "too many") for number in range(30))).describe_left_out()

    assert described.count("\n") == 10
    assert described.endswith("20 more files.")
