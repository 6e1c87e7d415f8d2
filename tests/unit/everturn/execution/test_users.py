"""The user of one run: never shared by two live runs of any supervisor."""

import os
import subprocess

import pytest

from chat_proc.settings import WorkerSettings
from everturn.execution.messages import UidRange, parse_uid_range
from everturn.execution.users import claim_user
from exec_supervisor.broker.settings import BrokerSettings


def test_no_two_runs_have_the_same_user_and_a_released_one_is_used_again(tmp_path):
    uids = UidRange(30_000, 30_001)
    folder = tmp_path / "locks"

    with claim_user(uids, folder, "UIDS") as first:
        with (
            claim_user(uids, folder, "UIDS") as second,
            pytest.raises(OSError, match="all 2 users of UIDS"),
            claim_user(uids, folder, "UIDS"),
        ):
            pass
        with claim_user(uids, folder, "UIDS") as third:
            assert {first, second} == {30_000, 30_001}
            assert third == second


def test_the_lock_of_a_process_that_was_killed_is_released(tmp_path):
    uids = UidRange(30_000, 30_000)
    child = os.fork()
    if child == 0:
        with claim_user(uids, tmp_path / "locks", "UIDS"):
            os.kill(os.getpid(), 9)
    os.waitpid(child, 0)

    with claim_user(uids, tmp_path / "locks", "UIDS") as uid:
        assert uid == 30_000


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has other users")
def test_a_user_whose_processes_still_run_is_not_claimed(tmp_path):
    left = subprocess.Popen(["sleep", "60"], user=30_000)
    try:
        for _ in range(8):
            with claim_user(UidRange(30_000, 30_001), tmp_path / "locks", "UIDS") as uid:
                assert uid == 30_001
    finally:
        left.kill()
        left.wait()


def test_a_claim_that_fails_keeps_no_user(tmp_path, monkeypatch):
    uids, listed = UidRange(30_000, 30_000), iter([os.listdir("/proc")])
    with monkeypatch.context() as patched:
        # The second look fails, as without a free descriptor.
        patched.setattr(os, "listdir", lambda _: next(listed))
        with pytest.raises(RuntimeError), claim_user(uids, tmp_path / "locks", "UIDS"):
            pass

    with claim_user(uids, tmp_path / "locks", "UIDS") as uid:
        assert uid == 30_000


def test_the_default_ranges_of_one_machine_share_no_user():
    worker, broker = WorkerSettings.model_fields, BrokerSettings.model_fields
    texts = (worker["sandbox_uids"].default, worker["bundle_uids"].default, broker["uids"].default)
    users = [uid for found in map(parse_uid_range, texts) for uid in range(found.first, found.last + 1)]

    assert len(users) == len(set(users))


def test_a_folder_writable_by_others_is_refused(tmp_path):
    folder = tmp_path / "locks"
    folder.mkdir()
    folder.chmod(0o777)

    with pytest.raises(PermissionError), claim_user(UidRange(30_000, 30_000), folder, "UIDS"):
        pass


@pytest.mark.parametrize("text", ["", "20000", "20000-19999", "0-10", "999-2000", "1-x", "20000-2147483648", "-5"])
def test_an_invalid_user_range_is_refused(text):
    with pytest.raises(ValueError, match="range"):
        parse_uid_range(text)
