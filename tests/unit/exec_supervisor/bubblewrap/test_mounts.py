"""The run's folder without root's means; with them it is tried on the real sandbox."""

import os
from pathlib import Path

import pytest

from everturn.execution.messages import RunLimits
from exec_supervisor.bubblewrap import mounts
from exec_supervisor.bubblewrap.mounts import Bind, build_mount_plan, make_run_dir, remove_run_dir


@pytest.fixture
def ordinary_user():
    """Root without its rights is what an ordinary user is to this module."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    yield
    os.seteuid(0)


def test_an_ordinary_user_binds_the_roots_as_they_are(tmp_path, ordinary_user_folder):
    run_dir = ordinary_user_folder / "run"
    make_run_dir(run_dir)

    plan = build_mount_plan(run_dir, ("/usr/lib",), RunLimits(), 1001)

    assert plan.read_only == (Bind("/usr/lib", "/usr/lib"),)
    assert (plan.work, plan.out) == (None, None)
    assert Path(plan.socket_dir).is_dir()
    assert run_dir.stat().st_mode & 0o777 == 0o711


@pytest.fixture
def ordinary_user_folder(tmp_path_factory, request):
    folder = tmp_path_factory.mktemp("ordinary")
    for place in (folder, folder.parent, folder.parent.parent):
        if place.stat().st_uid == os.geteuid():
            place.chmod(place.stat().st_mode | 0o011)
    folder.chmod(0o777)
    request.getfixturevalue("ordinary_user")
    return folder


def test_an_existing_folder_is_not_used(tmp_path):
    with pytest.raises(FileExistsError):
        make_run_dir(tmp_path)


def test_removing_takes_the_socket_and_nothing_that_is_not_ours(tmp_path):
    run_dir = tmp_path / "run"
    (run_dir / "gateway").mkdir(parents=True)
    (run_dir / "gateway" / mounts.SOCKET_NAME).touch()

    remove_run_dir(run_dir)
    remove_run_dir(run_dir)

    assert not run_dir.exists()


def test_a_root_that_is_still_mounted_below_is_not_deleted(tmp_path):
    run_dir = tmp_path / "run"
    (run_dir / "root0").mkdir(parents=True)
    (run_dir / "root0" / "precious").touch()

    with pytest.raises(OSError, match="not empty"):
        remove_run_dir(run_dir)

    assert (run_dir / "root0" / "precious").exists()
