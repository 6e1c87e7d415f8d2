"""The folder of all state: access, passwords, the lock, deletion."""

import os
from pathlib import Path

import pytest

from everturn_local.home import (
    HomeDamagedError,
    HomeInUseError,
    HomeUnusableError,
    check_unused,
    load_secrets,
    remove_home,
    run_lock,
    save_home,
    save_secrets,
    save_signing_secret,
)


def test_nobody_else_may_enter_the_home(tmp_path: Path):
    home = save_home(tmp_path / "home")

    assert home.root.stat().st_mode & 0o067 == 0
    for folder in (home.redis, home.objects, home.logs, home.processes):
        assert folder.stat().st_mode & 0o777 == 0o700


def test_an_open_home_is_closed(tmp_path: Path):
    (tmp_path / "home").mkdir(mode=0o777)

    assert save_home(tmp_path / "home").root.stat().st_mode & 0o067 == 0


def test_a_folder_that_holds_other_files_is_neither_used_nor_closed(tmp_path: Path):
    (tmp_path / "letter.txt").write_text("mine")
    tmp_path.chmod(0o755)

    with pytest.raises(HomeUnusableError, match="contains other files"):
        save_home(tmp_path)

    assert tmp_path.stat().st_mode & 0o777 == 0o755


def test_an_uncreatable_home_is_an_error_with_a_reason(tmp_path: Path):
    (tmp_path / "file").write_text("x")

    with pytest.raises(HomeUnusableError, match="Set EVERTURN_HOME"):
        save_home(tmp_path / "file")


def test_a_home_in_use_is_detected(tmp_path: Path):
    home = save_home(tmp_path / "home")
    check_unused(home)

    with run_lock(home), pytest.raises(HomeInUseError):
        check_unused(home)


def test_passwords_are_made_once_and_kept_from_others(tmp_path: Path):
    home = save_home(tmp_path / "home")

    first, second = save_secrets(home), save_secrets(home)

    assert first == second
    assert len({first.postgres, first.redis, first.everturn_owner, first.everturn_ingress}) == 4
    assert home.secrets_file.stat().st_mode & 0o777 == 0o600


def test_truncated_passwords_are_generated_again(tmp_path: Path):
    home = save_home(tmp_path / "home")
    home.secrets_file.with_suffix(".new").write_text('{"postg')

    assert save_secrets(home) == load_secrets(home)


def test_the_signing_secret_is_made_once_and_kept_from_others(tmp_path: Path):
    home = save_home(tmp_path / "home")

    first, second = save_signing_secret(home), save_signing_secret(home)

    assert first == second
    assert len(first) >= 32
    assert home.signing_secret_file.stat().st_mode & 0o777 == 0o600
    assert save_signing_secret(save_home(tmp_path / "other")) != first


def test_damaged_passwords_are_an_error_that_says_what_to_do(tmp_path: Path):
    home = save_home(tmp_path / "home")
    home.secrets_file.write_text("{}")

    with pytest.raises(HomeDamagedError, match="make clean"):
        save_secrets(home)


def test_a_second_run_on_one_home_names_the_first(tmp_path: Path):
    home = save_home(tmp_path / "home")

    with run_lock(home), pytest.raises(HomeInUseError, match=str(os.getpid())), run_lock(home):
        pass


def test_a_home_is_free_again_after_a_run(tmp_path: Path):
    home = save_home(tmp_path / "home")
    with run_lock(home):
        pass

    with run_lock(home):
        assert home.lock_file.read_text() == f"{os.getpid()}\n"


def test_deleting_a_home_leaves_what_is_not_ours(tmp_path: Path):
    home = save_home(tmp_path)
    save_secrets(home)
    (tmp_path / "thesis.txt").write_text("mine")

    remove_home(home)

    assert [entry.name for entry in tmp_path.iterdir()] == ["thesis.txt"]


def test_deleting_a_home_removes_it_when_nothing_else_is_in_it(tmp_path: Path):
    home = save_home(tmp_path / "home")

    remove_home(home)

    assert not home.root.exists()
