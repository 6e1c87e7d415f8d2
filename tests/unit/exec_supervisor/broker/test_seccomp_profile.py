"""The profile of container runs as data; what the kernel makes of it is tried in a container."""

import json
import subprocess
import sys

from exec_supervisor.broker.seccomp_profile import (
    ALLOWED,
    build_node_profile,
    build_profile,
)
from exec_supervisor.system_calls import (
    AF_INET,
    AF_UNIX,
    DEVICE_TYPES,
    FIRST_REFUSED_TCP_OPTION,
    NAMESPACE_FLAGS,
    REFUSED,
    S_IFMT,
    SO_ATTACH_FILTER,
    SOL_SOCKET,
    TCP,
    TIOCLINUX,
    TIOCSTI,
    UNKNOWN,
)

ONLY_WITH_ARGUMENTS = {"socket", "socketpair", "clone", "mknod", "mknodat", "ioctl"}


def load_conditions(name: str) -> list[list[dict[str, int]]]:
    return [rule["args"] for rule in build_profile()["syscalls"] if name in rule["names"]]


def test_nothing_that_bubblewrap_refuses_is_allowed():
    allowed = {
        name for rule in build_profile()["syscalls"] if rule["action"] == "SCMP_ACT_ALLOW" for name in rule["names"]
    }

    assert build_profile()["defaultAction"] == "SCMP_ACT_ERRNO"
    assert allowed & {*REFUSED, *UNKNOWN} == set()
    assert len(set(ALLOWED)) == len(ALLOWED)
    assert set(ALLOWED) & ONLY_WITH_ARGUMENTS == set()


def test_sockets_are_of_the_unix_family_unless_a_network_was_asked_for():
    assert load_conditions("socket") == [[{"index": 0, "value": AF_UNIX, "op": "SCMP_CMP_EQ"}]]
    assert load_conditions("socketpair") == load_conditions("socket")

    assert load_conditions("setsockopt") == [[]]

    rules = build_profile(network=True)["syscalls"]

    conditions = [
        [(each["index"], each["value"]) for each in rule["args"]] for rule in rules if "socket" in rule["names"]
    ]
    assert conditions == [[(0, AF_UNIX)], [(0, AF_INET), (1, 0xF), (2, 0)], [(0, AF_INET), (1, 0xF), (2, TCP)]]
    options = [[each["value"] for each in rule["args"]] for rule in rules if "setsockopt" in rule["names"]]
    between = [[SOL_SOCKET, option] for option in range(27, 50)]
    assert options == [[SOL_SOCKET, SO_ATTACH_FILTER], *between, [TCP, FIRST_REFUSED_TCP_OPTION]]


def test_no_flag_of_a_new_namespace_passes():
    ((condition,),) = load_conditions("clone")

    assert (condition["op"], condition["valueTwo"]) == ("SCMP_CMP_MASKED_EQ", 0)
    assert all(condition["value"] & flag for flag in NAMESPACE_FLAGS)


def test_devices_and_terminal_input_are_blocked():
    for name in ("mknod", "mknodat"):
        kinds = [condition["valueTwo"] for (condition,) in load_conditions(name)]
        assert {condition["value"] for (condition,) in load_conditions(name)} == {S_IFMT}
        assert set(kinds) & set(DEVICE_TYPES) == set()
    requests = [condition["valueTwo"] for (condition,) in load_conditions("ioctl")]
    assert set(requests) & {TIOCSTI, TIOCLINUX} == set()
    assert {condition["value"] for (condition,) in load_conditions("ioctl")} == {0xFFFFFFFF}


def test_no_architecture_brings_its_32_bit_kind():
    assert {tuple(entry["subArchitectures"]) for entry in build_profile()["archMap"]} == {()}


def test_it_can_be_written_to_a_file_for_nodes():
    done = subprocess.run(
        [sys.executable, "-I", "-m", "exec_supervisor.broker.seccomp_profile"],
        capture_output=True,
        check=True,
        timeout=20,
    )

    assert json.loads(done.stdout) == build_node_profile()
    assert build_node_profile()["syscalls"] == build_profile()["syscalls"]
