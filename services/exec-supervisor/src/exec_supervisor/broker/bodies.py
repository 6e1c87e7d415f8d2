"""The create requests of a pair, as pure functions of its profile: all that a broker ever requests from an engine.

A body has only keys that are written here, and its only caller-provided value is the run's id, as a label. So no
message and no profile can express a bind, a volume driver option, a device, a capability or a namespace of the host.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from everturn.execution.messages import GATEWAY_SOCKET, MIB, OUTPUT_DIR, WORKDIR, RunLimits
from everturn.execution.profiles import ExecutionProfile

Role = Literal["supervisor", "executor"]
Body = dict[str, object]

SOCKET_DIR: Final = GATEWAY_SOCKET.rpartition("/")[0]
SUPERVISOR_USER: Final = "1002:1002"
SOCKET_GROUP: Final = "1001"

SUPERVISOR_MEMORY_BYTES: Final = 256 * MIB
SUPERVISOR_PROCESSES: Final = 32
SUPERVISOR_OPEN_FILES: Final = 512
RUNNER_PROCESSES: Final = 4
"""The runner and what it needs in addition to the program: its zygote and a reader per stream."""

RUNNER_OPEN_FILES: Final = 64

LABEL_BROKER: Final = "everturn.broker"
LABEL_PAIR: Final = "everturn.pair"
LABEL_ROLE: Final = "everturn.role"
LABEL_PROFILE: Final = "everturn.profile"
LABEL_RUN: Final = "everturn.run"
LABEL_EXPIRES: Final = "everturn.expires"


@dataclass(frozen=True, slots=True)
class PairLabels:
    """The labels of a pair's resources. `expires` is in seconds since 1970; a warm pair has no run yet."""

    broker: str
    pair: str
    profile: str
    run_id: str
    expires: int

    def build(self) -> dict[str, str]:
        labels = {
            LABEL_BROKER: self.broker,
            LABEL_PAIR: self.pair,
            LABEL_PROFILE: self.profile,
            LABEL_EXPIRES: str(self.expires),
        }
        return {**labels, LABEL_RUN: self.run_id} if self.run_id else labels


def name_container(pair: str, role: Role) -> str:
    return f"everturn-{pair}-{role}"


def name_volume(pair: str) -> str:
    return f"everturn-{pair}"


def build_supervisor(
    profile: ExecutionProfile, labels: PairLabels, seccomp: Mapping[str, object] | None, executor_uid: int
) -> Body:
    """The trusted half. Its stdin is its lifeline: the engine closes it when the broker's attachment ends."""
    return {
        **_common(profile.supervisor_image, SUPERVISOR_USER, labels, "supervisor"),
        "Cmd": ["--executor-uid", str(executor_uid)],
        "OpenStdin": True,
        "StdinOnce": True,
        "AttachStdin": True,
        "AttachStdout": True,
        "AttachStderr": True,
        "HostConfig": {
            **_confinement(seccomp),
            "NetworkMode": profile.network_mode,
            "GroupAdd": [SOCKET_GROUP],
            "Memory": SUPERVISOR_MEMORY_BYTES,
            "MemorySwap": SUPERVISOR_MEMORY_BYTES,
            "NanoCpus": 1_000_000_000,
            "PidsLimit": SUPERVISOR_PROCESSES,
            "Ulimits": _ulimits(open_files=SUPERVISOR_OPEN_FILES, file_bytes=MIB),
            "IpcMode": "none",
            "OomScoreAdj": 500,
            "Mounts": [_socket_volume(labels, read_only=False)],
        },
    }


def build_executor(
    profile: ExecutionProfile,
    labels: PairLabels,
    seccomp: Mapping[str, object] | None,
    uid: int,
    preload: Sequence[str] = (),
) -> Body:
    """The untrusted half: no network, and only two writable folders, with size limits, that count as its memory.

    Its `uid` is unique to the pair; the group is that of the sockets, which all pairs share.
    """
    limits = profile.limits
    return {
        **_common(profile.executor_image, f"{uid}:{SOCKET_GROUP}", labels, "executor"),
        "Cmd": ["--preload", ",".join(preload)] if preload else [],
        "HostConfig": {
            **_confinement(seccomp),
            "NetworkMode": "none",
            "Memory": limits.memory_bytes,
            "MemorySwap": limits.memory_bytes,
            "NanoCpus": round(profile.cpus * 1_000_000_000),
            "PidsLimit": limits.processes + RUNNER_PROCESSES,
            # The runner unpacks inputs, which can be larger than a file of the program.
            "Ulimits": _ulimits(
                open_files=limits.open_files + RUNNER_OPEN_FILES,
                file_bytes=max(limits.file_bytes, limits.work_dir_bytes),
            ),
            **_shared_memory(profile),
            "OomScoreAdj": 1000,
            "Tmpfs": {
                WORKDIR: _tmpfs_options(limits, limits.work_dir_bytes, uid),
                OUTPUT_DIR: _tmpfs_options(limits, limits.out_dir_bytes, uid),
            },
            "Mounts": [_socket_volume(labels, read_only=True)],
        },
    }


def _common(image: str, user: str, labels: PairLabels, role: Role) -> Body:
    return {
        "Image": image,
        "User": user,
        "Hostname": "sandbox",
        "Tty": False,
        "OpenStdin": False,
        "AttachStdin": False,
        "AttachStdout": False,
        "AttachStderr": False,
        "Labels": {**labels.build(), LABEL_ROLE: role},
    }


def _confinement(seccomp: Mapping[str, object] | None) -> Body:
    options = ["no-new-privileges"]
    if seccomp is not None:
        options.append(f"seccomp={json.dumps(seccomp, separators=(',', ':'))}")
    return {
        "AutoRemove": True,
        "Privileged": False,
        "CapDrop": ["ALL"],
        "SecurityOpt": options,
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


def _socket_volume(labels: PairLabels, *, read_only: bool) -> Body:
    """The pair's own volume, created with the first container. Both images have its folder with the right owner."""
    return {
        "Type": "volume",
        "Source": name_volume(labels.pair),
        "Target": SOCKET_DIR,
        "ReadOnly": read_only,
        "VolumeOptions": {"NoCopy": read_only, "Labels": labels.build(), "DriverConfig": {"Name": "local"}},
    }
