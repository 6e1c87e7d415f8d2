"""Which files a root names."""

import pytest

from chat_proc.workspace.local import MAX_WALKED, LocalFile, Workspace, select_files
from everturn.core.errors import Invalid
from everturn.core.ids import ConversationId, TurnId
from everturn.files.model import ArtifactKind
from everturn_testing.timeline import build_file

HERE = ConversationId("conv_1")


def local(path: str, ref: str) -> LocalFile:
    return LocalFile(path, ref, build_file("turn_2", "x", b"x", kind=ArtifactKind.FILE), "own")


WORKSPACE = Workspace(
    TurnId("turn_2"),
    {
        file.path: file
        for file in (
            local("turn_2/files/src/b.py", "fi:turn_2.files/src/b.py"),
            local("turn_2/files/src/a.py", "fi:turn_2.files/src/a.py"),
            local("turn_2/files/src2.py", "fi:turn_2.files/src2.py"),
            local("turn_2/outputs/a.csv", "fi:turn_2.outputs/a.csv"),
            local("turn_2/attachments/s.csv", "fi:turn_2.user.attachments/s.csv"),
            local(
                "turn_2/external/followup/attachments/sig_1/t.csv",
                "fi:turn_2.external.followup.attachments/sig_1/t.csv",
            ),
            local("turn_1/files/old.py", "fi:turn_1.files/old.py"),
            local("conv_9/turn_3/files/z.py", "fi:conv_9.turn_3.files/z.py"),
        )
    },
)
SRC = ["turn_2/files/src/a.py", "turn_2/files/src/b.py"]


@pytest.mark.parametrize(
    ("root", "paths"),
    [
        ("files/src", SRC),
        ("files/src/", SRC),
        ("./files/src/", SRC),
        ("turn_2/files/src/", SRC),
        ("conv_1/turn_2/files/src", SRC),
        ("fi:turn_2.files/src/", SRC),
        ("fi:conv_1.turn_2.files/src", SRC),
        ("files", [*SRC, "turn_2/files/src2.py"]),
        ("files/src2.py", ["turn_2/files/src2.py"]),
        ("fi:turn_2.files/src2.py", ["turn_2/files/src2.py"]),
        ("outputs/", ["turn_2/outputs/a.csv"]),
        ("attachments/", ["turn_2/attachments/s.csv", "turn_2/external/followup/attachments/sig_1/t.csv"]),
        ("fi:turn_2.user.attachments/", ["turn_2/attachments/s.csv"]),
        ("turn_1/", ["turn_1/files/old.py"]),
        ("fi:turn_1", ["turn_1/files/old.py"]),
        ("fi:turn_1.files", ["turn_1/files/old.py"]),
        ("conv_9/turn_3/files/", ["conv_9/turn_3/files/z.py"]),
        ("fi:conv_9.turn_3.files/", ["conv_9/turn_3/files/z.py"]),
        ("", sorted(WORKSPACE.files)),
        (".", sorted(WORKSPACE.files)),
    ],
)
def test_a_root_names_a_file_or_what_is_below_a_folder(root: str, paths: list[str]) -> None:
    selection = select_files(WORKSPACE, root, HERE)

    assert [file.path for file in selection.files] == paths
    assert selection.notices == ()


@pytest.mark.parametrize(
    ("root", "notice"),
    [
        ("files/none/", "There are no local files under files/none/."),
        ("turn_0/files/", 'react.pull {"paths": ["fi:turn_0.files/"]}'),
        ("fi:turn_0.files/a.py", 'react.pull {"paths": ["fi:turn_0.files/"]}'),
        ("fi:conv_8.turn_0.files/", 'react.pull {"paths": ["fi:conv_8.turn_0.files/"]}'),
        ("conv_8/turn_0/files/", 'react.pull {"paths": ["fi:conv_8.turn_0.files/"]}'),
    ],
)
def test_a_missing_root_says_what_would_bring_it(root: str, notice: str) -> None:
    selection = select_files(WORKSPACE, root, HERE)

    assert selection.files == ()
    assert notice in selection.notices[0]


@pytest.mark.parametrize(
    "root", ["/etc", "../x", "files/../x", "src/", "workdir", "fi:nothing", "ar:turn_1.user.prompt"]
)
def test_what_can_be_no_root_is_refused(root: str) -> None:
    with pytest.raises(Invalid):
        select_files(WORKSPACE, root, HERE)


def test_a_selection_of_more_than_2000_files_is_cut() -> None:
    files = [local(f"turn_2/files/{n:05d}", f"fi:turn_2.files/{n:05d}") for n in range(MAX_WALKED + 3)]

    selection = select_files(Workspace(TurnId("turn_2"), {file.path: file for file in files}), "files/", HERE)

    assert len(selection.files) == MAX_WALKED
    assert selection.notices == ("2003 files match; only the first 2000 by path were searched.",)
