"""The create requests: every field of both bodies, and that no profile or message can express anything else."""

import json
from dataclasses import replace
from typing import Any, cast

import pytest
from pydantic import ValidationError

from everturn.execution.broker_messages import StartPair
from everturn.execution.messages import MIB, RunLimits
from everturn.execution.profiles import ExecutionProfile, load_profiles
from everturn.execution.records import BadMessage, build_message, parse_message
from exec_supervisor.broker.docker_bodies import (
    Body,
    build_combined,
    build_executor,
    build_supervisor,
    name_container,
    name_volume,
)
from exec_supervisor.broker.engine import PairPlan
from exec_supervisor.broker.pair_limits import (
    COMBINED_MEMORY_BYTES,
    RUNNER_OPEN_FILES,
    RUNNER_PROCESSES,
    SUPERVISOR_MEMORY_BYTES,
    SUPERVISOR_OPEN_FILES,
)
from exec_supervisor.broker.seccomp_profile import build_profile

PROFILE = ExecutionProfile(executor_image="exe:1", supervisor_image="sup:1", cpus=1.5, preload=("numpy", "pandas"))
UID = 21_007
PLAN = PairPlan("p1", "default", PROFILE, "run_1", 1_800_000_000, UID)
EXPECTED_LABELS = {
    "everturn.broker": "b1",
    "everturn.pair": "p1",
    "everturn.profile": "default",
    "everturn.run": "run_1",
    "everturn.expires": "1800000000",
}
HOST_KEYS = frozenset(
    {
        "AutoRemove",
        "CapDrop",
        "CgroupnsMode",
        "GroupAdd",
        "Init",
        "IpcMode",
        "LogConfig",
        "Memory",
        "MemorySwap",
        "Mounts",
        "NanoCpus",
        "NetworkMode",
        "OomScoreAdj",
        "PidsLimit",
        "Privileged",
        "ReadonlyRootfs",
        "RestartPolicy",
        "Runtime",
        "SecurityOpt",
        "ShmSize",
        "Tmpfs",
        "Sysctls",
        "Ulimits",
    }
)
"""All that a pair ever asks for. What is not here (Binds, Devices, CapAdd, PidMode, ...) can't be asked for. One
container for both halves adds the capabilities of its start, and overrides the entry point of its image."""

TOP_KEYS = frozenset(
    {
        "AttachStderr",
        "AttachStdin",
        "AttachStdout",
        "Cmd",
        "HostConfig",
        "Hostname",
        "Image",
        "Labels",
        "OpenStdin",
        "StdinOnce",
        "Tty",
        "User",
    }
)


def host_config(body: Body) -> dict[str, object]:
    return cast("dict[str, object]", body["HostConfig"])


def both(profile: ExecutionProfile = PROFILE) -> tuple[Body, Body]:
    plan = replace(PLAN, profile=profile)
    return build_supervisor(plan, "b1"), build_executor(plan, "b1")


def combined(profile: ExecutionProfile = PROFILE) -> Body:
    return build_combined(replace(PLAN, profile=profile), "b1")


def test_both_halves_have_the_same_confinement():
    for body in (*both(), combined()):
        host = host_config(body)

        assert host["CapDrop"] == ["ALL"]
        assert host["Privileged"] is False
        assert host["ReadonlyRootfs"] is True
        assert seccomp_of(body) == build_profile()
        assert host["LogConfig"] == {"Type": "none"}
        assert host["AutoRemove"] is True
        assert host["RestartPolicy"] == {"Name": "no"}
        assert host["Init"] is False
        assert host["IpcMode"] == "none"
        assert host["CgroupnsMode"] == "private"
        assert host["Memory"] == host["MemorySwap"]
        assert body["Tty"] is False
        assert body["Hostname"] == "sandbox"


def test_the_executor_is_limited_as_its_profile_says():
    limits = PROFILE.limits
    body = both()[1]
    host = host_config(body)

    assert body["Image"] == "exe:1"
    assert body["User"] == f"{UID}:1001"
    assert body["Cmd"] == []
    assert body["OpenStdin"] is False
    assert host["NetworkMode"] == "none"
    assert host["Memory"] == limits.memory_bytes
    assert host["NanoCpus"] == 1_500_000_000
    assert host["PidsLimit"] == limits.processes + RUNNER_PROCESSES
    assert host["Tmpfs"] == {
        "/workspace/work": "rw,nosuid,nodev,noexec,size=268435456,nr_inodes=8192,uid=21007,gid=1001,mode=0700",
        "/workspace/out": "rw,nosuid,nodev,noexec,size=134217728,nr_inodes=8192,uid=21007,gid=1001,mode=0700",
    }
    assert amounts_of(host) == {
        "core": 0,
        "fsize": limits.work_dir_bytes,
        "memlock": 0,
        "msgqueue": 0,
        "nofile": limits.open_files + RUNNER_OPEN_FILES,
    }


def test_only_a_pair_that_no_run_waits_for_imports_modules_ahead():
    warm = replace(PLAN, run_id="")

    assert build_executor(warm, "b1")["Cmd"] == ["--preload", "numpy,pandas"]
    assert build_executor(replace(warm, profile=ExecutionProfile()), "b1")["Cmd"] == []


def test_the_supervisor_has_its_own_limits_and_its_stdin_is_its_lifeline():
    body = both()[0]
    host = host_config(body)

    assert body["Image"] == "sup:1"
    assert body["User"] == "1002:1002"
    assert (body["OpenStdin"], body["StdinOnce"], body["AttachStdin"]) == (True, True, True)
    assert body["Cmd"] == ["--executor-uid", str(UID)]
    assert host["GroupAdd"] == ["1001"]
    assert host["NetworkMode"] == "none"
    assert host["Memory"] == SUPERVISOR_MEMORY_BYTES
    assert host["PidsLimit"] == 32
    assert amounts_of(host)["fsize"] == MIB
    assert "Tmpfs" not in host


def test_one_container_has_the_limits_of_the_program_and_room_for_its_supervisor():
    pair, body = both()[1], combined()
    limits, one = host_config(pair), host_config(body)

    assert (body["Image"], body["User"], body["WorkingDir"]) == ("exe:1", "0:0", "/")
    assert (body["OpenStdin"], body["StdinOnce"], body["AttachStdin"]) == (True, True, True)
    assert cast("list[str]", body["Entrypoint"])[-2:] == ["exec_supervisor", "combined"]
    assert body["Cmd"] == ["--program-uid", str(UID)]
    assert body["Labels"] == {**EXPECTED_LABELS, "everturn.role": "combined"}
    assert one["CapAdd"] == ["SETGID", "SETUID", "SETPCAP"]
    assert one["Memory"] == cast("int", limits["Memory"]) + COMBINED_MEMORY_BYTES
    assert one["PidsLimit"] == cast("int", limits["PidsLimit"]) + 2
    assert amounts_of(one)["nofile"] == max(amounts_of(limits)["nofile"], SUPERVISOR_OPEN_FILES)
    sockets = {"/run/everturn": "rw,nosuid,nodev,noexec,size=64k,nr_inodes=16,uid=1002,gid=1001,mode=0750"}
    assert one["Tmpfs"] == cast("dict[str, str]", limits["Tmpfs"]) | sockets
    assert "Mounts" not in one
    changed = {"CapAdd", "Memory", "MemorySwap", "Mounts", "OomScoreAdj", "PidsLimit", "Tmpfs", "Ulimits"}
    assert {name for name in {*one, *limits} if one.get(name) != limits.get(name)} == changed


def test_one_container_never_has_a_network_and_gets_the_runtime_and_the_modules_of_the_profile():
    profile = ExecutionProfile(network=("api.example.com",), runtime="runsc", preload=("numpy",))
    body = build_combined(replace(PLAN, profile=profile, run_id=""), "b1")

    assert host_config(body)["NetworkMode"] == "none"
    assert host_config(body)["Runtime"] == "runsc"
    assert socket_families_of(body) == {1}
    assert body["Cmd"] == ["--program-uid", str(UID), "--preload", "numpy"]


def test_only_the_executor_gets_the_runtime_of_the_profile():
    supervisor, executor = both(PROFILE.model_copy(update={"runtime": "runsc"}))

    assert host_config(executor)["Runtime"] == "runsc"
    assert "Runtime" not in host_config(supervisor) | host_config(both()[1])


def test_a_program_with_a_network_gets_tcp_sockets_and_a_proxy_but_no_device():
    supervisor, executor = both(ExecutionProfile(network=("api.example.com",)))

    assert host_config(supervisor)["NetworkMode"] == host_config(executor)["NetworkMode"] == "none"
    assert socket_families_of(executor) == {1, 2}
    assert socket_families_of(supervisor) == socket_families_of(both()[0]) == socket_families_of(both()[1]) == {1}
    assert "--network" in cast("list[str]", supervisor["Cmd"]) and executor["Cmd"] == ["--network"]
    assert "262144" in json.dumps(host_config(executor)["Sysctls"])
    assert "Sysctls" not in host_config(both()[1])


def test_the_only_mount_is_the_pairs_own_volume_without_any_driver_option():
    for body, read_only in zip(both(), (False, True), strict=True):
        [mount] = cast("list[dict[str, object]]", host_config(body)["Mounts"])

        assert mount == {
            "Type": "volume",
            "Source": "everturn-p1",
            "Target": "/run/everturn",
            "ReadOnly": read_only,
            "VolumeOptions": {"NoCopy": read_only, "Labels": EXPECTED_LABELS, "DriverConfig": {"Name": "local"}},
        }


def test_everything_is_labelled_and_a_warm_pair_has_no_run():
    supervisor, executor = both()
    warm = build_executor(replace(PLAN, run_id=""), "b1")

    assert supervisor["Labels"] == {**EXPECTED_LABELS, "everturn.role": "supervisor"}
    assert executor["Labels"] == {**EXPECTED_LABELS, "everturn.role": "executor"}
    assert "everturn.run" not in cast("dict[str, str]", warm["Labels"])
    assert (name_container("p1", "executor"), name_volume("p1")) == ("everturn-p1-executor", "everturn-p1")


def test_shared_memory_is_there_only_where_the_operator_gives_it():
    supervisor, executor = both(ExecutionProfile(shm_bytes=8 * MIB))

    assert (host_config(executor)["IpcMode"], host_config(executor)["ShmSize"]) == ("private", 8 * MIB)
    assert host_config(supervisor)["IpcMode"] == "none"


def test_file_size_limit_covers_the_input_folder():
    host = host_config(both(ExecutionProfile(limits=RunLimits(file_bytes=9 * MIB, work_dir_bytes=5 * MIB)))[1])

    assert amounts_of(host)["fsize"] == 9 * MIB


@pytest.mark.parametrize(
    "trick",
    [
        {"binds": ["/:/host"]},
        {"mounts": [{"Type": "bind", "Source": "/", "Target": "/host"}]},
        {"volumes": {"/host": {}}},
        {"volume_driver": "local", "driver_opts": {"type": "none", "o": "bind", "device": "/"}},
        {"privileged": True},
        {"cap_add": ["SYS_ADMIN"]},
        {"devices": ["/dev/kmsg"]},
        {"pid_mode": "host"},
        {"ipc_mode": "host"},
        {"uts_mode": "host"},
        {"userns_mode": "host"},
        {"security_opt": ["seccomp=unconfined"]},
        {"extra_args": ["--privileged"]},
        {"network_mode": "host"},
        {"network": ["localhost"]},
        {"network": "bridge"},
        {"limits": {"memory_swap": 1}},
        {"anything": 1},
    ],
)
def test_a_profile_cannot_weaken_the_sandbox(trick: dict[str, object]):
    with pytest.raises(ValidationError):
        ExecutionProfile.model_validate(trick)


@pytest.mark.parametrize("field", ["binds", "image", "limits", "labels", "cmd", "HostConfig", "volume_options"])
def test_a_caller_can_name_a_profile_and_a_run_and_nothing_else(field: str):
    message = {**build_message(StartPair("default", "run_1")), field: {"o": "bind", "device": "/"}}

    with pytest.raises(BadMessage):
        parse_message(message, StartPair)


@pytest.mark.parametrize(
    "run_id", ["o=bind,device=/", '"},"Privileged":true,"x":{"', "$(id)", "../..", "--privileged", "\u202e"]
)
def test_a_run_id_is_only_the_text_of_one_label(run_id: str):
    for build in (build_supervisor, build_executor, build_combined):
        said, quiet = (build(replace(PLAN, run_id=text), "b1") for text in (run_id, "X"))
        assert json.loads(json.dumps(said).replace(json.dumps(run_id), '"X"')) == quiet


def test_no_profile_makes_a_body_with_a_key_that_is_not_known_here():
    widest = json.dumps(
        {
            "wide": {
                "limits": {"memory_bytes": 1 << 40, "processes": 10_000, "open_files": 10_000},
                "cpus": 64,
                "shm_bytes": 8 << 30,
                "network": ["api.example.com"],
                "warm": 32,
                "preload": ["numpy"],
            }
        }
    )

    for profile in load_profiles(widest).values():
        for body in both(profile):
            assert set(body) <= TOP_KEYS
            assert set(host_config(body)) <= HOST_KEYS
        assert set(combined(profile)) <= TOP_KEYS | {"Entrypoint", "WorkingDir"}
        assert set(host_config(combined(profile))) <= HOST_KEYS | {"CapAdd"}


def amounts_of(host: dict[str, object]) -> dict[str, int]:
    entries = cast("list[dict[str, object]]", host["Ulimits"])
    assert all(entry["Soft"] == entry["Hard"] for entry in entries)
    return {str(entry["Name"]): cast("int", entry["Hard"]) for entry in entries}


def seccomp_of(body: Body) -> dict[str, Any]:
    [no_new_privileges, seccomp] = cast("list[str]", host_config(body)["SecurityOpt"])
    assert no_new_privileges == "no-new-privileges"
    return json.loads(seccomp.removeprefix("seccomp="))


def socket_families_of(body: Body) -> set[int]:
    rules = [rule for rule in seccomp_of(body)["syscalls"] if rule["names"] == ["socket"]]
    return {rule["args"][0]["value"] for rule in rules}
