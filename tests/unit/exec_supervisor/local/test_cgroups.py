"""Control groups over plain folders: which place is chosen, what is written, what the kernel's counters mean."""

import os
from pathlib import Path

import pytest

from everturn.execution.messages import RunLimits
from exec_supervisor.local.cgroups import Cgroup, parse_own_cgroups, try_create_cgroup

LIMITS = RunLimits(memory_bytes=1000, processes=10)
OWN_V1 = "8:pids:/\n4:memory:/app/x\n9:name=systemd:/\n0::/\n"
OWN_V2 = "0::/system.slice/app.service\n"


def folder(root: Path, path: str, control: str = "") -> Path:
    place = root / path
    place.mkdir(parents=True, exist_ok=True)
    (place / "cgroup.subtree_control").write_text(control)
    return place


def test_own_paths_are_read_per_controller():
    text = "3:cpu,cpuacct:/c\n" + OWN_V1

    paths = parse_own_cgroups(text)

    assert (paths["cpu"], paths["cpuacct"], paths["memory"], paths["pids"], paths[""]) == (
        "/c",
        "/c",
        "/app/x",
        "/",
        "/",
    )


def test_version_1_makes_a_group_per_controller_below_our_own(tmp_path):
    folder(tmp_path, "memory/app/x")
    folder(tmp_path, "pids")

    cgroup = try_create_cgroup("run", LIMITS, 3, root=tmp_path, own=OWN_V1)

    assert cgroup == Cgroup(1, tmp_path / "memory/app/x/everturn-run", tmp_path / "pids/everturn-run")
    assert (cgroup.memory / "memory.limit_in_bytes").read_text() == "1000"
    assert (cgroup.processes / "pids.max").read_text() == "13"


def test_version_2_creates_a_sibling_of_its_own_group(tmp_path):
    folder(tmp_path, "system.slice", "cpu memory pids")
    folder(tmp_path, "system.slice/app.service", "")

    cgroup = try_create_cgroup("run", LIMITS, 3, root=tmp_path, own=OWN_V2)

    assert cgroup is not None
    assert cgroup.folders() == (tmp_path / "system.slice/everturn-run",)
    assert (cgroup.memory / "memory.max").read_text() == "1000"


def test_version_2_prefers_a_child_of_our_own(tmp_path):
    folder(tmp_path, "system.slice", "memory pids")
    own = folder(tmp_path, "system.slice/app.service", "memory pids")

    cgroup = try_create_cgroup("run", LIMITS, 3, root=tmp_path, own=OWN_V2)

    assert cgroup is not None
    assert cgroup.memory.parent == own


@pytest.mark.parametrize("own", [OWN_V2, OWN_V1, "0::/\n", ""])
def test_without_cgroup_rights_there_is_no_group(tmp_path, own):
    assert try_create_cgroup("run", LIMITS, 3, root=tmp_path / "nothing", own=own) is None


def test_an_existing_group_is_not_used(tmp_path):
    folder(tmp_path, "system.slice", "memory pids")
    folder(tmp_path, "system.slice/app.service")
    folder(tmp_path, "system.slice/everturn-run")

    assert try_create_cgroup("run", LIMITS, 3, root=tmp_path, own=OWN_V2) is None
    assert (tmp_path / "system.slice/everturn-run").is_dir()


def test_a_group_that_can_not_be_made_costs_no_time(tmp_path, monkeypatch):
    """As where the cgroup file system is read-only: removing fails there too, for another reason than absence."""
    for controller in ("memory", "pids"):
        (tmp_path / controller).write_text("a file, in which no folder can be made")
    waits: list[float] = []
    monkeypatch.setattr("time.sleep", waits.append)

    assert try_create_cgroup("run", LIMITS, 3, root=tmp_path, own=OWN_V1) is None
    assert waits == []


def test_groups_left_by_killed_supervisors_are_removed(tmp_path):
    folder(tmp_path, "system.slice", "memory pids")
    folder(tmp_path, "system.slice/app.service")
    old, fresh = tmp_path / "system.slice/everturn-old", tmp_path / "system.slice/everturn-fresh"
    for place in (old, fresh):
        place.mkdir()
    os.utime(old, (0, 0))

    try_create_cgroup("run", LIMITS, 3, root=tmp_path, own=OWN_V2)

    assert (old.exists(), fresh.exists()) == (False, True)


def test_the_group_of_a_run_is_kept_until_its_supervisor_has_ended(tmp_path):
    folder(tmp_path, "system.slice", "memory pids")
    folder(tmp_path, "system.slice/app.service")
    running = try_create_cgroup("long", LIMITS, 3, root=tmp_path, own=OWN_V2)
    assert running is not None
    for file in running.memory.iterdir():
        file.unlink()
    os.utime(running.memory, (0, 0))

    try_create_cgroup("second", LIMITS, 3, root=tmp_path, own=OWN_V2)
    kept = running.memory.exists()
    for lock in running.locks:
        os.close(lock)  # the kernel does this when a supervisor is killed
    try_create_cgroup("third", LIMITS, 3, root=tmp_path, own=OWN_V2)

    assert (kept, running.memory.exists()) == (True, False)


@pytest.mark.parametrize(
    ("version", "memory", "pids", "hits"),
    [
        (1, "oom_kill_disable 0\nunder_oom 0\noom_kill 0\n", "max 0\n", ()),
        (1, "oom_kill_disable 0\noom_kill 2\n", "max 0\n", ("memory",)),
        (2, "low 0\noom 1\noom_kill 1\n", "max 5\n", ("memory", "processes")),
        (2, "nonsense", "", ()),
    ],
)
def test_the_kernels_counters_name_the_limits(tmp_path, version, memory, pids, hits):
    (tmp_path / ("memory.events" if version == 2 else "memory.oom_control")).write_text(memory)
    (tmp_path / "pids.events").write_text(pids)

    assert Cgroup(version, tmp_path, tmp_path).load_hits() == hits


def test_removing_a_group_that_is_gone_is_fine(tmp_path):
    cgroup = Cgroup(2, tmp_path / "a", tmp_path / "a")
    (tmp_path / "a").mkdir()

    cgroup.remove()
    cgroup.remove()

    assert not (tmp_path / "a").exists()
