"""What a supervisor says about the sandbox that it built."""

from exec_supervisor.local.cgroups import Cgroup
from exec_supervisor.local.folders import MountPlan
from exec_supervisor.local.sandbox import Isolation, build_posture


def test_the_posture_follows_what_was_made(tmp_path):
    isolation = Isolation("stand-in", lambda *_: (), 0, "none", "none")

    bare = build_posture(isolation, 1001, MountPlan((), ""), None)
    full = build_posture(isolation, 1001, MountPlan((), "", "/w", "/o"), Cgroup(2, tmp_path, tmp_path))

    assert (bare.memory, bare.disk) == (
        "RLIMIT_AS and a watchdog on the sum of resident memory",
        "tmpfs limited in bytes",
    )
    assert (full.memory, full.disk) == ("cgroup v2 and RLIMIT_AS", "tmpfs limited in bytes and inodes")
