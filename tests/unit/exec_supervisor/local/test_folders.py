"""The run's folder without root's means; with them it is tried on the real sandbox."""

import os
from pathlib import Path

import pytest

from everturn.execution.messages import RunLimits
from exec_supervisor.local import folders
from exec_supervisor.local.folders import (
    Bind,
    build_mount_plan,
    load_system_links,
    load_system_roots,
    make_run_dir,
    remove_run_dir,
)


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
    (run_dir / "gateway" / folders.SOCKET_NAME).touch()

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


def make_system(root: Path, *files: str) -> tuple[str, ...]:
    for file in files:
        (root / file).parent.mkdir(parents=True, exist_ok=True)
        (root / file).touch()
    return load_system_roots(root)


def test_only_libraries_and_plain_commands_are_mounted(tmp_path):
    programs = ("usr/bin/sh", "usr/bin/grep", "usr/bin/ssh", "usr/bin/gdb", "usr/bin/docker")
    libraries = ("usr/lib/x86_64-linux-gnu/libc.so.6", "usr/lib/python3/dist-packages/a.py", "usr/lib/locale/C.utf8/x")

    found = make_system(tmp_path, *programs, *libraries, "usr/lib64/ld.so", "etc/passwd", "etc/ld.so.cache")

    assert set(found) == {
        "/etc/ld.so.cache",
        "/usr/lib/x86_64-linux-gnu",
        "/usr/lib/locale",
        "/usr/lib64",
        "/usr/bin/grep",
        "/usr/bin/sh",
    }


def test_without_architecture_folders_the_common_one_is_mounted(tmp_path):
    assert make_system(tmp_path, "usr/lib/libc.so.6", "bin/sh") == ("/usr/lib", "/bin/sh")


def test_the_links_of_a_merged_system_are_kept():
    assert all(place in ("/bin", "/lib", "/lib32", "/lib64") for _, place in load_system_links())
