"""The bubblewrap command of a run."""

from dataclasses import replace

from everturn.execution.messages import Boot, Interpreter, RunLimits, UidRange
from exec_supervisor.bubblewrap import build_command
from exec_supervisor.local.folders import Bind, Masked, MountPlan

BOOT = Boot(
    limits=RunLimits(work_dir_bytes=11, out_dir_bytes=22),
    interpreter=Interpreter("/venv/bin/python", ("/venv",)),
    executable="/usr/bin/bwrap",
    run_dir="/run/x",
    uids=UidRange(20_000, 20_999),
)
PLAIN = MountPlan((Bind("/venv", "/venv"),), "/run/x/gateway")
COPIED = MountPlan((Bind("/run/x/root0", "/venv"),), "/run/x/gateway", "/run/x/work", "/run/x/out")


def pairs(command: list[str], name: str, count: int = 2) -> list[tuple[str, ...]]:
    return [tuple(command[place + 1 : place + 1 + count]) for place, word in enumerate(command) if word == name]


def test_all_namespaces_are_requested():
    command = build_command(BOOT, replace(PLAIN, links=(("usr/lib", "/lib"),)), 7)

    for wall in (
        "--unshare-all",
        "--unshare-user",
        "--disable-userns",
        "--die-with-parent",
        "--new-session",
        "--clearenv",
    ):
        assert wall in command
    assert pairs(command, "--cap-drop", 1) == [("ALL",)]
    assert pairs(command, "--seccomp", 1) == [("7",)]
    assert pairs(command, "--remount-ro", 1) == [("/proc",), ("/",)]
    assert pairs(command, "--uid", 1) == pairs(command, "--gid", 1) == [("1001",)]
    assert ("usr/lib", "/lib") in pairs(command, "--symlink")
    assert len(command) - command[::-1].index("--remount-ro") > max(
        place for place, word in enumerate(command) if "bind" in word
    )


def test_modules_to_import_ahead_are_named_to_the_executor():
    assert build_command(replace(BOOT, preload=("numpy", "a.b")), PLAIN, 7)[-2:] == [
        "--preload",
        "numpy,a.b",
    ]
    assert "--preload" not in build_command(BOOT, PLAIN, 7)


def test_folders_are_bound_where_they_were_staged():
    command = build_command(BOOT, COPIED, 7)

    assert pairs(command, "--ro-bind") == [("/run/x/root0", "/venv"), ("/run/x/gateway", "/run/everturn")]
    assert pairs(command, "--bind") == [("/run/x/work", "/workspace/work"), ("/run/x/out", "/workspace/out")]
    assert "--tmpfs" not in command


def test_without_staging_bubblewrap_makes_the_workspace_itself():
    command = build_command(BOOT, PLAIN, 7)

    assert pairs(command, "--size", 3) == [("11", "--tmpfs", "/workspace/work"), ("22", "--tmpfs", "/workspace/out")]


def test_the_runner_starts_with_an_empty_environment_as_the_first_process():
    command = build_command(BOOT, PLAIN, 7)

    assert {"--clearenv", "--as-pid-1"} <= set(command)
    assert "--setenv" not in command


def test_machine_details_are_hidden_and_proc_is_read_only():
    command = build_command(BOOT, replace(PLAIN, masked=Masked(("/proc/cmdline",), ("/proc/acpi",))), 7)

    assert ("/dev/null", "/proc/cmdline") in pairs(command, "--ro-bind")
    assert ("/proc/acpi",) in pairs(command, "--tmpfs", 1)
    assert pairs(command, "--remount-ro", 1)[:2] == [("/proc/acpi",), ("/proc",)]


def test_packages_of_other_projects_are_hidden():
    hidden = replace(BOOT, interpreter=Interpreter("/venv/bin/python", ("/venv", "/b"), ("/b/site-packages",)))

    assert ("/b/site-packages",) in pairs(build_command(hidden, PLAIN, 7), "--tmpfs", 1)
