"""`make clean`: state is deleted only when that was meant."""

from pathlib import Path

import pytest

from everturn_local.__main__ import MAX_PRINTED, main
from everturn_local.home import run_lock, save_home


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("EVERTURN_HOME", str(tmp_path / "home"))
    return save_home(tmp_path / "home").root


@pytest.mark.parametrize(("answer", "kept"), [("y", False), ("", True), ("no", True)])
def test_state_is_deleted_after_a_yes_only(root: Path, monkeypatch: pytest.MonkeyPatch, answer: str, kept: bool):
    monkeypatch.setattr("builtins.input", lambda _: answer)

    main(["clean"])

    assert root.exists() == kept


def test_without_anybody_to_answer_state_is_kept(root: Path, monkeypatch: pytest.MonkeyPatch):
    def refuse(_: str) -> str:
        raise EOFError

    monkeypatch.setattr("builtins.input", refuse)

    assert main(["clean"]) == 1
    assert root.exists()


def test_the_state_of_a_running_platform_is_not_deleted(root: Path, capsys: pytest.CaptureFixture[str]):
    with run_lock(save_home(root)):
        assert main(["clean", "--yes"]) == 1

    assert root.exists()
    assert "in use by process" in capsys.readouterr().err


def test_cleaning_twice_is_no_error(root: Path):
    assert main(["clean", "--yes"]) == 0
    assert main(["clean", "--yes"]) == 0
    assert not root.exists()


def test_what_is_not_ours_stays_and_the_exit_status_and_names_tell_it(root: Path, capsys: pytest.CaptureFixture[str]):
    (root / "notes.txt").write_text("mine")

    assert main(["clean", "--yes"]) == 1

    assert [path.name for path in root.iterdir()] == ["notes.txt"]
    assert capsys.readouterr().err.splitlines()[1:] == ["  notes.txt"]


def test_only_the_first_remaining_names_are_printed(root: Path, capsys: pytest.CaptureFixture[str]):
    for number in range(MAX_PRINTED + 2):
        (root / f"{number:03}.txt").touch()

    assert main(["clean", "--yes"]) == 1

    printed = capsys.readouterr().err.splitlines()[1:]
    assert (printed[0], printed[-1], len(printed)) == ("  000.txt", "  and 2 more", MAX_PRINTED + 1)
