"""The workspace is a fold over the turn's blocks."""

from hashlib import sha256

from hypothesis import given
from hypothesis import strategies as st

from chat_proc.workspace.local import fold_workspace
from everturn.files.model import ArtifactKind
from everturn.timeline.blocks import BlockType, CheckoutBody, EventBody
from everturn_testing.timeline import TimelineBuilder, build_file


def begin(turn_id: str = "turn_2", *attachments) -> TimelineBuilder:
    timeline = TimelineBuilder()
    timeline.start_turn(turn_id, "Go", *attachments)
    return timeline


def check_out(timeline: TimelineBuilder, mode: str, *names: str, source: str = "turn_1", content: str = "") -> None:
    body = CheckoutBody(
        mode=mode,
        sources=tuple(f"fi:{source}.files/{name}" for name in names),
        artifacts=tuple(
            build_file("turn_2", name, (content or source).encode(), kind=ArtifactKind.FILE) for name in names
        ),
    )
    timeline.add(BlockType.CHECKOUT, "ar:turn_2.artifacts.workspace.checkout.c", body)


def write(timeline: TimelineBuilder, name: str, data: bytes, kind: ArtifactKind = ArtifactKind.FILE) -> None:
    timeline.result("call_1", "react.write", "ok", build_file("turn_2", name, data, kind=kind))


def test_a_turn_has_its_own_files_and_what_came_with_its_messages() -> None:
    sales, more, form = (build_file("turn_2", f"{name}.csv", b"a") for name in ("sales", "more", "form"))
    timeline = begin("turn_2", sales)
    write(timeline, "a.py", b"1")
    write(timeline, "chart.png", b"png", ArtifactKind.OUTPUT)
    timeline.say("followup", "sig_1", "And this", more)
    event = EventBody(signal_id="sig_2", kind="form", text="", attachments=(form,))
    timeline.add(BlockType.EXTERNAL_EVENT, "ar:turn_2.external.form.sig_2", event)

    workspace = fold_workspace(timeline.blocks, timeline.turn_id)

    assert {path: file.origin for path, file in workspace.files.items()} == {
        "turn_2/attachments/sales.csv": "attached",
        "turn_2/files/a.py": "own",
        "turn_2/outputs/chart.png": "own",
        "turn_2/attachments/more.csv": "attached",
        "turn_2/attachments/form.csv": "attached",
    }


def test_nothing_of_earlier_turns_is_there_by_itself() -> None:
    timeline = TimelineBuilder()
    timeline.start_turn("turn_1", "Go", build_file("turn_1", "sales.csv", b"a"))
    timeline.result("call_0", "react.write", "ok", build_file("turn_1", "a.py", b"1", kind=ArtifactKind.FILE))
    timeline.start_turn("turn_2", "Again")

    assert fold_workspace(timeline.blocks, timeline.turn_id).files == {}


def test_the_last_content_wins_and_every_version_counts_as_written() -> None:
    timeline = begin()
    write(timeline, "a.py", b"1")
    write(timeline, "a.py", b"22")

    workspace = fold_workspace(timeline.blocks, timeline.turn_id)

    assert workspace.files["turn_2/files/a.py"].artifact.size == 2
    assert workspace.written_bytes == 3


def test_a_replacing_checkout_replaces_only_workspace_files() -> None:
    timeline = begin("turn_2", build_file("turn_2", "sales.csv", b"a"))
    write(timeline, "old.py", b"1")
    write(timeline, "chart.png", b"png", ArtifactKind.OUTPUT)

    check_out(timeline, "replace", "app.py")

    workspace = fold_workspace(timeline.blocks, timeline.turn_id)
    assert set(workspace.files) == {"turn_2/attachments/sales.csv", "turn_2/outputs/chart.png", "turn_2/files/app.py"}
    assert workspace.files["turn_2/files/app.py"].checked_out_from == "fi:turn_1.files/app.py"


def test_an_overlaying_checkout_overwrites_and_deletes_nothing() -> None:
    timeline = begin()
    write(timeline, "mine.py", b"1")
    write(timeline, "app.py", b"mine")

    check_out(timeline, "overlay", "app.py")

    workspace = fold_workspace(timeline.blocks, timeline.turn_id)
    assert set(workspace.files) == {"turn_2/files/mine.py", "turn_2/files/app.py"}
    assert workspace.files["turn_2/files/app.py"].checked_out_from == "fi:turn_1.files/app.py"


def test_a_checked_out_file_that_is_written_is_marked_as_changed() -> None:
    timeline = begin()
    check_out(timeline, "replace", "app.py", "b.py")

    write(timeline, "app.py", b"changed")

    files = fold_workspace(timeline.blocks, timeline.turn_id).files
    assert (files["turn_2/files/app.py"].changed, files["turn_2/files/b.py"].changed) == (True, False)
    assert files["turn_2/files/app.py"].checked_out_from == "fi:turn_1.files/app.py"


def test_a_failed_pull_and_data_of_another_kind_bring_nothing() -> None:
    timeline = begin()
    root = {"ref": "fi:turn_1.files/a", "path": "turn_1/files/a", "size": 1}
    timeline.result("call_1", "react.pull", "no", data={"pulled": [root]}, status="error")
    timeline.result("call_2", "other.tool", "ok", data={"pulled": [root]})
    timeline.result("call_3", "react.pull", "ok", data={"pulled": "all"})

    assert fold_workspace(timeline.blocks, timeline.turn_id).pulled == ()


def test_a_pulled_root_counts_once_however_often_it_is_pulled() -> None:
    timeline = begin()
    for call in ("call_1", "call_2"):
        root = {"ref": "fi:turn_1.files/", "path": "turn_1/files/", "size": 7, "file_count": 3, "files": ["a"]}
        timeline.result(call, "react.pull", "ok", data={"pulled": [root]})

    workspace = fold_workspace(timeline.blocks, timeline.turn_id)
    assert (workspace.pulled_files, workspace.pulled_bytes) == (3, 7)


NAMES = st.sampled_from(["a", "b", "c/d", "c/e"])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), NAMES),
        st.tuples(st.sampled_from(["replace", "overlay"]), st.lists(NAMES, min_size=1, unique=True)),
    ),
    max_size=12,
)


@given(STEPS)
def test_the_fold_is_what_a_folder_on_a_disk_would_hold(steps) -> None:
    timeline, disk = begin(), {}
    for number, (kind, what) in enumerate(steps):
        content = f"content {number}"
        if kind == "write":
            write(timeline, what, content.encode())
            disk[what] = content
        else:
            check_out(timeline, kind, *what, content=content)
            disk = {**({} if kind == "replace" else disk), **dict.fromkeys(what, content)}

    files = fold_workspace(timeline.blocks, timeline.turn_id).files

    expected = {f"turn_2/files/{name}": sha256(text.encode()).hexdigest() for name, text in disk.items()}
    assert {path: file.artifact.sha256 for path, file in files.items()} == expected


@given(STEPS, st.integers(min_value=0, max_value=12))
def test_folding_does_not_depend_on_blocks_of_other_turns(steps, cut: int) -> None:
    plain, mixed = begin(), begin()
    for number, (kind, what) in enumerate(steps):
        for timeline in (plain, mixed):
            if kind == "write":
                write(timeline, what, str(number).encode())
            else:
                check_out(timeline, kind, *what, content=str(number))
        if number == cut:
            mixed.turn_id = "turn_9"
            write(mixed, "stray", b"stray")
            mixed.turn_id = "turn_2"

    assert fold_workspace(mixed.blocks, "turn_2") == fold_workspace(plain.blocks, "turn_2")
