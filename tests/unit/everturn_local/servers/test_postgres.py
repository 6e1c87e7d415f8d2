"""Reading postmaster.pid."""

from pathlib import Path

import pytest

from everturn_local.servers.postgres import is_ready, try_load_postmaster_pid

FILE = "42\n/data\n1712346200\n5432\n\n127.0.0.1\n 123 4\n{status}\n"


@pytest.mark.parametrize(("status", "ready"), [("ready   ", True), ("starting", False), ("stopping", False)])
def test_a_server_is_ready_when_it_says_so(tmp_path: Path, status: str, ready: bool):
    (tmp_path / "postmaster.pid").write_text(FILE.format(status=status))

    assert is_ready(tmp_path, 42) is ready


def test_a_ready_line_of_an_earlier_server_does_not_count(tmp_path: Path):
    (tmp_path / "postmaster.pid").write_text(FILE.format(status="ready"))

    assert not is_ready(tmp_path, 43)


@pytest.mark.parametrize("text", ["", "not a number\n"])
def test_a_damaged_file_names_no_process(tmp_path: Path, text: str):
    (tmp_path / "postmaster.pid").write_text(text)

    assert try_load_postmaster_pid(tmp_path) is None
    assert not is_ready(tmp_path, 42)


def test_an_absent_file_names_no_process(tmp_path: Path):
    assert try_load_postmaster_pid(tmp_path) is None
