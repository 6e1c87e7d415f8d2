"""The requests that create a pair, as pure functions of its plan: a broker creates nothing else in a Docker engine.

A body has only keys that are written here, and its only caller-provided value is the run's id, as a label. So no
message and no profile can express a bind, a volume driver option, a device, a capability or a namespace of the host.
"""

import json
from collections.abc import Mapping
from typing import Final, Literal

from everturn.execution.messages import MIB, OUTPUT_DIR, WORKDIR, RunLimits
from everturn.execution.profiles import ExecutionProfile
from exec_supervisor.broker.engine import PairPlan
from exec_supervisor.broker.pair_limits import (
    COMBINED_MEMORY_BYTES,
    COMBINED_PROCESSES,
    RUNNER_OPEN_FILES,
    RUNNER_PROCESSES,
    SOCKET_DIR,
    SOCKET_GROUP,
    SUPERVISOR_MEMORY_BYTES,
    SUPERVISOR_OPEN_FILES,
    SUPERVISOR_PROCESSES,
    SUPERVISOR_UID,
)
from exec_supervisor.broker.seccomp_profile import build_profile
from exec_supervisor.system_calls import TCP_BUFFERS

Role = Literal["supervisor", "executor", "combined"]
"""What a container is of its pair; `combined` is both halves."""

Body = dict[str, object]

LABEL_BROKER: Final = "everturn.broker"
LABEL_PAIR: Final = "everturn.pair"
LABEL_ROLE: Final = "everturn.role"
LABEL_PROFILE: Final = "everturn.profile"
LABEL_RUN: Final = "everturn.run"
LABEL_EXPIRES: Final = "everturn.expires"

COMBINED_ENTRYPOINT: Final = ("/opt/everturn/bin/python", "-I", "-m", "exec_supervisor", "combined")
COMBINED_CAPABILITIES: Final = ("SETGID", "SETUID", "SETPCAP")
"""With them the supervisor starts its executor as another user. It gives them up before a program exists."""


def name_container(pair: str, role: Role) -> str:
    return f"everturn-{pair}-{role}"


def name_volume(pair: str) -> str:
    return f"everturn-{pair}"


def build_supervisor(plan: PairPlan, broker_id: str) -> Body:
    """The trusted half. Its stdin is its lifeline: the engine closes it when the broker's attachment ends."""
    profile, labels = plan.profile, _build_labels(plan, broker_id)
    return {
        **_common(profile.supervisor_image, f"{SUPERVISOR_UID}:{SUPERVISOR_UID}", labels, "supervisor"),
        "Cmd": ["--executor-uid", str(plan.executor_uid), *(["--network"] if profile.network else [])],
        **_ATTACHED,
        "HostConfig": {
            **_confinement(build_profile()),
            "NetworkMode": "none",
            "GroupAdd": [str(SOCKET_GROUP)],
            "Memory": SUPERVISOR_MEMORY_BYTES,
            "MemorySwap": SUPERVISOR_MEMORY_BYTES,
            "NanoCpus": 1_000_000_000,
            "PidsLimit": SUPERVISOR_PROCESSES,
            "Ulimits": _ulimits(open_files=SUPERVISOR_OPEN_FILES, file_bytes=MIB),
            "IpcMode": "none",
            "OomScoreAdj": 500,
            "Mounts": [_socket_volume(plan.name, labels, read_only=False)],
        },
    }


def build_executor(plan: PairPlan, broker_id: str) -> Body:
    """The untrusted half: no network device, and only two writable folders, with size limits, that count as its memory.

    Only this half gets the profile's runtime: the supervisor is ours, and it must start without delay.
    Its user is unique to the pair; the group is that of the sockets, which all pairs share.
    """
    profile, labels = plan.profile, _build_labels(plan, broker_id)
    return {
        **_common(profile.executor_image, f"{plan.executor_uid}:{SOCKET_GROUP}", labels, "executor"),
        "Cmd": [*(["--network"] if profile.network else []), *_preload(plan)],
        "HostConfig": {
            **_program_limits(
                plan, open_files=profile.limits.open_files + RUNNER_OPEN_FILES, network=bool(profile.network)
            ),
            **({"Sysctls": TCP_BUFFERS} if profile.network else {}),
            "Tmpfs": _workspace(plan),
            "OomScoreAdj": 1000,
            "Mounts": [_socket_volume(plan.name, labels, read_only=True)],
        },
    }


def build_combined(plan: PairPlan, broker_id: str) -> Body:
    """Both halves as processes of one container of the executor's image: no volume, and no network.

    The first process is the supervisor, so its stdin is the lifeline of the whole container. It starts as root with
    three capabilities, and with them gives the program the plan's user. Raising the scores by which processes are
    killed when memory runs out is left to those that are to die first.
    """
    limits = plan.profile.limits
    return {
        **_common(plan.profile.executor_image, "0:0", _build_labels(plan, broker_id), "combined"),
        "Entrypoint": [*COMBINED_ENTRYPOINT],
        "Cmd": ["--program-uid", str(plan.executor_uid), *_preload(plan)],
        "WorkingDir": "/",
        **_ATTACHED,
        "HostConfig": {
            **_program_limits(
                plan,
                open_files=max(limits.open_files + RUNNER_OPEN_FILES, SUPERVISOR_OPEN_FILES),
                more_memory_bytes=COMBINED_MEMORY_BYTES,
                more_processes=COMBINED_PROCESSES,
            ),
            "CapAdd": [*COMBINED_CAPABILITIES],
            "OomScoreAdj": 500,
            "Tmpfs": {
                **_workspace(plan),
                SOCKET_DIR: f"rw,nosuid,nodev,noexec,size=64k,nr_inodes=16,"
                f"uid={SUPERVISOR_UID},gid={SOCKET_GROUP},mode=0750",
            },
        },
    }


_ATTACHED: Final[Mapping[str, object]] = {
    "OpenStdin": True,
    "StdinOnce": True,
    "AttachStdin": True,
    "AttachStdout": True,
    "AttachStderr": True,
}


def _preload(plan: PairPlan) -> list[str]:
    return ["--preload", ",".join(plan.preload)] if plan.preload else []


def _program_limits(
    plan: PairPlan, *, open_files: int, more_memory_bytes: int = 0, more_processes: int = 0, network: bool = False
) -> Body:
    profile, limits = plan.profile, plan.profile.limits
    memory_bytes = limits.memory_bytes + more_memory_bytes
    return {
        **_confinement(build_profile(network=network)),
        **({"Runtime": profile.runtime} if profile.runtime else {}),
        "NetworkMode": "none",
        "Memory": memory_bytes,
        "MemorySwap": memory_bytes,
        "NanoCpus": round(profile.cpus * 1_000_000_000),
        "PidsLimit": limits.processes + RUNNER_PROCESSES + more_processes,
        # The runner unpacks inputs, which can be larger than a file of the program.
        "Ulimits": _ulimits(open_files=open_files, file_bytes=max(limits.file_bytes, limits.work_dir_bytes)),
        **_shared_memory(profile),
    }


def _workspace(plan: PairPlan) -> Body:
    limits, uid = plan.profile.limits, plan.executor_uid
    return {
        WORKDIR: _tmpfs_options(limits, limits.work_dir_bytes, uid),
        OUTPUT_DIR: _tmpfs_options(limits, limits.out_dir_bytes, uid),
    }


def _common(image: str, user: str, labels: Mapping[str, str], role: Role) -> Body:
    return {
        "Image": image,
        "User": user,
        "Hostname": "sandbox",
        "Tty": False,
        "OpenStdin": False,
        "AttachStdin": False,
        "AttachStdout": False,
        "AttachStderr": False,
        "Labels": {**labels, LABEL_ROLE: role},
    }


def _build_labels(plan: PairPlan, broker_id: str) -> dict[str, str]:
    labels = {
        LABEL_BROKER: broker_id,
        LABEL_PAIR: plan.name,
        LABEL_PROFILE: plan.profile_name,
        LABEL_EXPIRES: str(plan.expires_s),
    }
    return {**labels, LABEL_RUN: plan.run_id} if plan.run_id else labels


def _confinement(seccomp: Mapping[str, object]) -> Body:
    return {
        "AutoRemove": True,
        "Privileged": False,
        "CapDrop": ["ALL"],
        "SecurityOpt": ["no-new-privileges", f"seccomp={json.dumps(seccomp, separators=(',', ':'))}"],
        "ReadonlyRootfs": True,
        "CgroupnsMode": "private",
        "Init": False,
        "RestartPolicy": {"Name": "no"},
        "LogConfig": {"Type": "none"},
    }


def _shared_memory(profile: ExecutionProfile) -> Body:
    """Without `shm_bytes` there is no /dev/shm: it would be a third writable place."""
    return {"IpcMode": "private", "ShmSize": profile.shm_bytes} if profile.shm_bytes else {"IpcMode": "none"}


def _ulimits(*, open_files: int, file_bytes: int) -> list[dict[str, object]]:
    """No limit on processes here: the kernel counts them per uid, over all containers of the machine."""
    amounts = {"core": 0, "fsize": file_bytes, "memlock": 0, "msgqueue": 0, "nofile": open_files}
    return [{"Name": name, "Soft": amount, "Hard": amount} for name, amount in amounts.items()]


def _tmpfs_options(limits: RunLimits, size_bytes: int, uid: int) -> str:
    owner = f"uid={uid},gid={SOCKET_GROUP},mode=0700"
    return f"rw,nosuid,nodev,noexec,size={size_bytes},nr_inodes={limits.inodes},{owner}"


def _socket_volume(pair: str, labels: Mapping[str, str], *, read_only: bool) -> Body:
    """The pair's own volume, created with the first container. Both images have its folder with the right owner."""
    return {
        "Type": "volume",
        "Source": name_volume(pair),
        "Target": SOCKET_DIR,
        "ReadOnly": read_only,
        "VolumeOptions": {"NoCopy": read_only, "Labels": dict(labels), "DriverConfig": {"Name": "local"}},
    }
