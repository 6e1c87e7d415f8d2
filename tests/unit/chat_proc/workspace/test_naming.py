"""What a program names, without running it."""

import pytest

from chat_proc.workspace.local import LocalFile
from chat_proc.workspace.naming import MAX_PLACES, find_names, match_names
from everturn.files.model import ArtifactKind
from everturn_testing.timeline import build_file


def local(path: str) -> LocalFile:
    return LocalFile(path, path, build_file("turn_1", "x", b"x", kind=ArtifactKind.FILE), "pulled")


FILES = [
    local(path)
    for path in (
        "turn_1/attachments/sales 2025.csv",
        "turn_1/attachments/\u00fcber \U0001f600.csv",
        "turn_1/files/src/a.py",
        "turn_1/files/src/b.py",
        "turn_1/files/other.py",
        "conv_2/turn_3/outputs/x.csv",
    )
]


@pytest.mark.parametrize(
    ("program", "paths"),
    [
        ('pd.read_csv("turn_1/attachments/sales 2025.csv")', ["turn_1/attachments/sales 2025.csv"]),
        ("open(WORKDIR + '/turn_1/files/other.py')", ["turn_1/files/other.py"]),
        ('open(f"{WORKDIR}/turn_1/files/other.py")', ["turn_1/files/other.py"]),
        ('os.listdir("turn_1/files/src")', ["turn_1/files/src/a.py", "turn_1/files/src/b.py"]),
        ('glob("turn_1/files/src/*.py")', ["turn_1/files/src/a.py", "turn_1/files/src/b.py"]),
        ('open(f"turn_1/files/src/{name}.py")', ["turn_1/files/src/a.py", "turn_1/files/src/b.py"]),
        ('open("conv_2/turn_3/outputs/x.csv")', ["conv_2/turn_3/outputs/x.csv"]),
        (r'json.loads(\'{"p": "turn_1/attachments/\u00fcber \ud83d\ude00.csv"}\')', [FILES[1].path]),
        ("print(1)", []),
        ('open("turn_12/files/other.py")', []),
    ],
)
def test_files_are_named_by_their_path_or_by_a_folder(program: str, paths: list[str]) -> None:
    matched = match_names(find_names([program]), FILES)

    assert [file.path for file in matched.files] == paths


@pytest.mark.parametrize(
    ("program", "unknown"),
    [
        ('open("turn_1/files/none.py")', ("turn_1/files/none.py",)),
        ('open("turn_1/files/other.py")', ()),
        ('open(f"turn_1/files/{name}")', ()),
        ("# turn_1/files/none.py is what we read", ()),
        ('glob("turn_1/none/*.py")', ()),
    ],
)
def test_a_missing_quoted_path_is_reported(program: str, unknown: tuple[str, ...]) -> None:
    assert match_names(find_names([program]), FILES).unknown == unknown


def test_places_are_bounded() -> None:
    program = "\n".join(f'"turn_{number}/files/a"' for number in range(100))

    assert len(find_names([program]).places) == MAX_PLACES
    assert find_names(["conv_2/turn_3/files/a turn_3/files/b"]).places == (("conv_2", "turn_3"), (None, "turn_3"))


def test_a_long_program_without_names_is_read_quickly() -> None:
    assert find_names(["turn_" * 400_000]).places == ()
