"""What ANNOUNCE says of the workspace."""

from chat_proc.workspace.description import SHOWN_FILES, describe_workspace
from chat_proc.workspace.local import fold_workspace
from everturn.core.ids import TurnId
from everturn.files.model import ArtifactKind
from everturn.files.ports import WorkspaceTurn
from everturn.timeline.blocks import BlockType, CheckoutBody
from everturn_testing.timeline import TimelineBuilder, build_file


def begin(*attachments) -> TimelineBuilder:
    timeline = TimelineBuilder()
    timeline.start_turn("turn_2", "Go", *attachments)
    return timeline


def describe(timeline: TimelineBuilder, *turns: str) -> list[str]:
    rows = [WorkspaceTurn(TurnId(turn), 3) for turn in turns]
    return list(describe_workspace(fold_workspace(timeline.blocks, timeline.turn_id), rows))


def test_local_files_pulled_roots_and_earlier_turns_are_listed() -> None:
    timeline = begin(build_file("turn_2", "sales.csv", b"a,b"))
    names = ("app.py", "lib.py")
    copies = tuple(build_file("turn_2", name, b"1", kind=ArtifactKind.FILE) for name in names)
    body = CheckoutBody(mode="replace", sources=tuple(f"fi:turn_1.files/{name}" for name in names), artifacts=copies)
    timeline.add(BlockType.CHECKOUT, "ar:turn_2.artifacts.checkout", body)
    timeline.result("call_1", "react.patch", "ok", build_file("turn_2", "app.py", b"22", kind=ArtifactKind.FILE))
    chart = build_file("turn_2", "chart.png", b"png", mime="image/png", kind=ArtifactKind.OUTPUT)
    timeline.result("call_2", "exec_tools.execute_code_python", "ok", chart)
    roots = [
        {"ref": "fi:turn_0.files/", "path": "turn_0/files/", "size": 9, "file_count": 4},
        {"ref": "fi:turn_1.outputs/x", "path": "turn_1/outputs/x", "size": 1},
    ]
    timeline.result("call_3", "react.pull", "ok", data={"pulled": roots})

    lines = describe(timeline, "turn_2", "turn_1", "turn_0")

    assert lines == [
        "this turn writes to turn_2/files/ and turn_2/outputs/",
        "local, editable: 2 of 500 files in files/, 1 in outputs/, 6 bytes; written in this turn 5 of 250 MiB",
        "- fi:turn_2.files/lib.py (text/plain, 1 bytes), checked out from fi:turn_1.files/lib.py",
        "- fi:turn_2.files/app.py (text/plain, 2 bytes), checked out from fi:turn_1.files/app.py, modified",
        "- fi:turn_2.outputs/chart.png (image/png, 3 bytes)",
        "local, attached by the user:",
        "- fi:turn_2.user.attachments/sales.csv (3 bytes)",
        "local, pulled, read-only: 5 of 500 files, 10 bytes of 256 MiB",
        "- turn_0/files/ (4 files, 9 bytes)",
        "- turn_1/outputs/x (1 bytes)",
        "not local; the last turns with files/, newest first, for react.checkout or react.pull:",
        "- fi:turn_1.files/ (3 files)",
        "- fi:turn_0.files/ (3 files)",
    ]


def test_a_project_is_whole_after_each_of_its_turns() -> None:
    workspace = fold_workspace(begin().blocks, TurnId("turn_2"))
    lines = describe_workspace(workspace, [WorkspaceTurn(TurnId("turn_1"), 3, is_project=True)])

    assert lines[-2].startswith("not local; the whole project as it was after each of the last turns")
    assert lines[-1] == "- fi:turn_1.files/ (3 files)"


def test_an_empty_workspace_says_so() -> None:
    assert describe(begin()) == [
        "this turn writes to turn_2/files/ and turn_2/outputs/",
        "local: nothing written or checked out yet",
    ]


def test_of_many_files_those_worked_on_are_shown_and_the_rest_is_counted() -> None:
    timeline = begin()
    copies = tuple(build_file("turn_2", f"{n:03d}", b"1", kind=ArtifactKind.FILE) for n in range(100))
    sources = tuple(f"fi:turn_1.files/{n:03d}" for n in range(100))
    body = CheckoutBody(mode="replace", sources=sources, artifacts=copies)
    timeline.add(BlockType.CHECKOUT, "ar:turn_2.artifacts.checkout", body)
    timeline.result("call_1", "react.patch", "ok", build_file("turn_2", "007", b"22", kind=ArtifactKind.FILE))

    lines = describe(timeline)

    assert sum("fi:turn_2.files/" in line for line in lines) == SHOWN_FILES
    assert any("files/007" in line and line.endswith("modified") for line in lines)
    assert lines[-1] == "- and 70 more; react.search_files lists them"


def test_names_can_not_break_a_line() -> None:
    timeline = begin()
    timeline.result("call_1", "react.write", "ok", build_file("turn_2", "a\u200bb", b"1", kind=ArtifactKind.FILE))

    assert any("a\\u200bb" in line for line in describe(timeline))


def test_without_rows_the_history_is_reported_as_unavailable() -> None:
    lines = describe_workspace(fold_workspace(begin().blocks, TurnId("turn_2")), None)

    assert lines[-1] == "earlier turns: their files can't be listed now"
