"""The command's answers and exit statuses."""

from pathlib import Path

import pytest

from everturn_testing.lifecycle.exports import CONVERSATION, build_export
from ingress.__main__ import main


def test_a_complete_export_is_reported_with_its_last_hash(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.jsonl").write_bytes(b"".join(build_export("one", "two")))

    status = main(["verify-export", str(tmp_path / "a.jsonl")])

    assert status == 0
    assert capsys.readouterr().out.startswith(f"VALID {CONVERSATION}: 6 blocks, ")


def test_a_broken_export_is_reported_with_its_first_wrong_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = build_export("one", "two")
    (tmp_path / "a.jsonl").write_bytes(b"".join(lines[:3] + lines[4:]))

    status = main(["verify-export", str(tmp_path / "a.jsonl")])

    assert status == 1
    assert capsys.readouterr().out.startswith("BROKEN line 4: ")


def test_a_missing_file_is_an_error_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify-export", "/absent/file"]) == 2
    assert capsys.readouterr().err
