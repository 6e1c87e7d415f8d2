"""The user of one run: never shared by two live runs of any supervisor."""

import os

import pytest

from everturn.execution.messages import UidRange, parse_uid_range
from exec_supervisor.local.users import claim_user


def test_no_two_runs_have_the_same_user_and_a_released_one_is_used_again(tmp_path):
    uids = UidRange(30_000, 30_001)
    folder = tmp_path / "locks"

    with claim_user(uids, folder) as first:
        with claim_user(uids, folder) as second, pytest.raises(OSError, match="all 2 users"), claim_user(uids, folder):
            pass
        with claim_user(uids, folder) as third:
            assert {first, second} == {30_000, 30_001}
            assert third == second


def test_the_lock_of_a_process_that_was_killed_is_released(tmp_path):
    uids = UidRange(30_000, 30_000)
    child = os.fork()
    if child == 0:
        with claim_user(uids, tmp_path / "locks"):
            os.kill(os.getpid(), 9)
    os.waitpid(child, 0)

    with claim_user(uids, tmp_path / "locks") as uid:
        assert uid == 30_000


def test_a_folder_writable_by_others_is_refused(tmp_path):
    folder = tmp_path / "locks"
    folder.mkdir()
    folder.chmod(0o777)

    with pytest.raises(PermissionError), claim_user(UidRange(30_000, 30_000), folder):
        pass


@pytest.mark.parametrize("text", ["", "20000", "20000-19999", "0-10", "999-2000", "1-x", "20000-2147483648", "-5"])
def test_an_invalid_user_range_is_refused(text):
    with pytest.raises(ValueError, match="range"):
        parse_uid_range(text)
