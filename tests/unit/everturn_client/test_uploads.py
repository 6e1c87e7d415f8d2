"""Files on their way."""

from pathlib import Path

import pytest

from everturn_client import uploads
from everturn_client.errors import TooMuch


def test_files_are_read_with_their_names_and_types(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b"x,y\n")
    (tmp_path / "b.unknown").write_bytes(b"?")

    read = uploads.load_uploads([tmp_path / "a.csv", tmp_path / "b.unknown"])

    assert [(upload.filename, upload.mime, upload.data) for upload in read] == [
        ("a.csv", "text/csv", b"x,y\n"),
        ("b.unknown", "application/octet-stream", b"?"),
    ]


def test_too_many_or_too_large_files_are_refused(tmp_path: Path) -> None:
    big = tmp_path / "big"
    with big.open("wb") as file:
        file.truncate(uploads.MAX_UPLOAD_BYTES + 1)

    with pytest.raises(TooMuch):
        uploads.load_uploads([big])
    with pytest.raises(TooMuch):
        uploads.load_uploads([tmp_path / "x"] * 21)
    with pytest.raises(FileNotFoundError):
        uploads.load_uploads([tmp_path / "absent"])


@pytest.mark.parametrize(
    ("filename", "expected"),
    [
        ("chart.png", "chart.png"),
        ("../../etc/passwd", "_.._etc_passwd"),
        ("..", "file"),
        ("", "file"),
        ("a\nb\x00.txt", "a_b_.txt"),
        ("\u202egpj.exe", "_gpj.exe"),
        ("x" * 500 + ".csv", "x" * 116 + ".csv"),
    ],
)
def test_a_download_stays_in_its_folder(tmp_path: Path, filename: str, expected: str) -> None:
    assert uploads.build_free_path(tmp_path, filename) == tmp_path / expected


def test_a_download_does_not_replace_another_file(tmp_path: Path) -> None:
    (tmp_path / "a.csv").touch()
    (tmp_path / "a (1).csv").touch()

    assert uploads.build_free_path(tmp_path, "a.csv") == tmp_path / "a (2).csv"
