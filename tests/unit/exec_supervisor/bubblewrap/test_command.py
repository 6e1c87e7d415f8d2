"""The bubblewrap command of a run."""

from dataclasses import replace

from everturn.wire.execution import Boot, Interpreter, RunLimits
from exec_supervisor.bubblewrap.command import build_command, load_system_links, load_system_roots
from exec_supervisor.bubblewrap.mounts import Bind, Stage

BOOT = Boot(
    limits=RunLimits(work_dir_bytes=11, out_dir_bytes=22),
    interpreter=Interpreter("/venv/bin/python", ("/venv",)),
    bwrap="/usr/bin/bwrap",
    run_dir="/run/x",
    sandbox_uid=1001,
)
PLAIN = Stage((Bind("/venv", "/venv"),), "/run/x/gateway")
STAGED = Stage((Bind("/run/x/root0", "/venv"),), "/run/x/gateway", "/run/x/work", "/run/x/out")


def pairs(command: list[str], name: str, count: int = 2) -> list[tuple[str, ...]]:
    return [tuple(command[place + 1 : place + 1 + count]) for place, word in enumerate(command) if word == name]


def test_all_walls_are_asked_for():
    command = build_command(BOOT, PLAIN, (("usr/lib", "/lib"),), 7)

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
    assert pairs(command, "--remount-ro", 1) == [("/",)]
    assert pairs(command, "--uid", 1) == pairs(command, "--gid", 1) == [("1001",)]
    assert ("usr/lib", "/lib") in pairs(command, "--symlink")
    assert command.index("--remount-ro") > max(place for place, word in enumerate(command) if "bind" in word)


def test_modules_to_import_ahead_are_named_to_the_executor():
    assert build_command(replace(BOOT, preload=("numpy", "a.b")), PLAIN, (), 7)[-2:] == ["--preload", "numpy,a.b"]
    assert "--preload" not in build_command(BOOT, PLAIN, (), 7)


def test_folders_are_bound_where_they_were_staged():
    command = build_command(BOOT, STAGED, (), 7)

    assert pairs(command, "--ro-bind") == [("/run/x/root0", "/venv"), ("/run/x/gateway", "/run/everturn")]
    assert pairs(command, "--bind") == [("/run/x/work", "/workspace/work"), ("/run/x/out", "/workspace/out")]
    assert "--tmpfs" not in command


def test_without_staging_bubblewrap_makes_the_workspace_itself():
    command = build_command(BOOT, PLAIN, (), 7)

    assert pairs(command, "--size", 3) == [("11", "--tmpfs", "/workspace/work"), ("22", "--tmpfs", "/workspace/out")]


def test_the_runner_starts_with_an_empty_environment_as_the_first_process():
    command = build_command(BOOT, PLAIN, (), 7)

    assert {"--clearenv", "--as-pid-1"} <= set(command)
    assert "--setenv" not in command


def test_the_systems_folders_are_those_that_exist():
    assert "/usr/lib" in load_system_roots()
    assert "/etc" not in load_system_roots()
    assert "/usr" not in load_system_roots()
    assert all(place in ("/bin", "/lib", "/lib32", "/lib64") for _, place in load_system_links())
