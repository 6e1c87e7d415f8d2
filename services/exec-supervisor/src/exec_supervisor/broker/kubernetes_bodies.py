"""The Pod of a pair, as a pure function of its plan: all that a broker ever creates in a cluster.

Its only caller-provided value is the run's id, as an annotation. So no message and no profile can express a volume of
the node, a namespace of the host, a capability or an account of the cluster.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from everturn.execution.messages import MIB, OUTPUT_DIR, WORKDIR
from exec_supervisor.broker.engine import PairPlan
from exec_supervisor.broker.pair_limits import SOCKET_DIR, SOCKET_GROUP, SUPERVISOR_MEMORY_BYTES, SUPERVISOR_UID
from exec_supervisor.broker.placement import Toleration

Body = dict[str, Any]

LABEL_APP: Final = "app.kubernetes.io/name"
APP: Final = "everturn-run"
"""The label by which network policies know these Pods."""

LABEL_BROKER: Final = "everturn.io/broker"
LABEL_PAIR: Final = "everturn.io/pair"
LABEL_POOL: Final = "everturn.io/pool"
RUN: Final = "everturn.io/run"
EXPIRES: Final = "everturn.io/expires"
SAFE_TO_EVICT: Final = "cluster-autoscaler.kubernetes.io/safe-to-evict"
"""A Pod without a controller otherwise keeps the cluster's autoscaler from removing its node."""

SUPERVISOR_CPU_REQUEST: Final = "50m"
"""It waits most of the time, and may use a whole core when it forwards files."""

SHARED_MEMORY: Final = "/dev/shm"  # noqa: S108 - the path of a mount in a container
LOG_BYTES: Final = 16 * MIB
"""The only thing that a container can write on the node's disk is its log: its root is read-only."""
MAX_DEADLINE_S: Final = (1 << 31) - 1


@dataclass(frozen=True, slots=True)
class PodOptions:
    """What an operator sets about all Pods. `seccomp` is a profile of the nodes, by its path, for executors; empty for
    the container runtime's own. `owner_name` and `owner_uid` are the broker's own Pod, with which the cluster removes
    what is left; empty for none. The last three say on which nodes the Pods run, and what they displace."""

    seccomp: str = ""
    runtime_class: str = ""
    owner_name: str = ""
    owner_uid: str = ""
    node_selector: Mapping[str, str] = field(default_factory=dict[str, str])
    tolerations: Sequence[Toleration] = ()
    priority_class: str = ""


@dataclass(frozen=True, slots=True)
class DialPlan:
    """Where the supervisor connects: `host:port`, the certificate there, and its token."""

    address: str
    certificate: str
    token: str


def name_pod(pair: str) -> str:
    return f"everturn-run-{pair}"


def build_pod(plan: PairPlan, broker_id: str, options: PodOptions, dial: DialPlan) -> Body:
    """The executor is listed first, so that its image, which is larger, is there before the supervisor waits for it."""
    spec: Body = {
        "containers": [_build_executor(plan, options), _build_supervisor(plan, options, dial)],
        "volumes": _build_volumes(plan),
        "restartPolicy": "Never",
        "activeDeadlineSeconds": max(1, min(plan.expires_s - int(time.time()), MAX_DEADLINE_S)),
        "terminationGracePeriodSeconds": 0,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "shareProcessNamespace": False,
        "hostname": "sandbox",
        # Nothing here looks up names, and the names of the cluster's own domain are not a program's business.
        "dnsPolicy": "None",
        "dnsConfig": {"nameservers": ["127.0.0.1"]},
        "securityContext": {
            "runAsNonRoot": True,
            "fsGroup": SOCKET_GROUP,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
    }
    if runtime_class := plan.profile.runtime or options.runtime_class:
        spec["runtimeClassName"] = runtime_class
    if options.node_selector:
        spec["nodeSelector"] = dict(options.node_selector)
    if options.tolerations:
        spec["tolerations"] = [toleration.build() for toleration in options.tolerations]
    if options.priority_class:
        spec["priorityClassName"] = options.priority_class
    return {"apiVersion": "v1", "kind": "Pod", "metadata": _build_metadata(plan, broker_id, options), "spec": spec}


def _build_metadata(plan: PairPlan, broker_id: str, options: PodOptions) -> Body:
    annotations = {EXPIRES: str(plan.expires_s)}
    if plan.run_id:
        annotations[RUN] = plan.run_id
    else:
        annotations[SAFE_TO_EVICT] = "true"
    metadata: Body = {
        "name": name_pod(plan.name),
        "labels": {
            LABEL_APP: APP,
            LABEL_BROKER: broker_id,
            LABEL_PAIR: plan.name,
            # A label must end with a letter or digit, a profile's name need not.
            LABEL_POOL: plan.profile_name.rstrip("-_"),
        },
        "annotations": annotations,
    }
    if options.owner_name and options.owner_uid:
        owner: Body = {"apiVersion": "v1", "kind": "Pod", "name": options.owner_name, "uid": options.owner_uid}
        metadata["ownerReferences"] = [owner]
    return metadata


def _build_supervisor(plan: PairPlan, options: PodOptions, dial: DialPlan) -> Body:
    """The trusted half. Its connection to the broker is its lifeline."""
    return {
        **_common("supervisor", plan.profile.supervisor_image, SUPERVISOR_UID, SUPERVISOR_UID, ""),
        "args": [
            "--executor-uid",
            str(plan.executor_uid),
            "--dial",
            dial.address,
            "--certificate",
            dial.certificate,
            "--pair",
            plan.name,
            "--token",
            dial.token,
            *(["--seccomp", options.seccomp] if options.seccomp else []),
        ],
        "resources": _build_resources("1", SUPERVISOR_CPU_REQUEST, SUPERVISOR_MEMORY_BYTES),
        "volumeMounts": [{"name": "sockets", "mountPath": SOCKET_DIR}],
    }


def _build_executor(plan: PairPlan, options: PodOptions) -> Body:
    """The untrusted half. Its writable folders are in memory, count as its memory, and have size limits.

    Its user is unique to the pair; the group is that of the sockets. A Pod shares /dev/shm among its containers, so it
    gets one of its own, which is writable only if the profile says so.
    """
    profile = plan.profile
    cpu = f"{round(profile.cpus * 1000)}m"
    return {
        **_common("executor", profile.executor_image, plan.executor_uid, SOCKET_GROUP, options.seccomp),
        "args": ["--unix-sockets-only", *(["--preload", ",".join(plan.preload)] if plan.preload else [])],
        "resources": _build_resources(cpu, cpu, profile.limits.memory_bytes),
        "volumeMounts": [
            {"name": "sockets", "mountPath": SOCKET_DIR, "readOnly": True},
            {"name": "work", "mountPath": WORKDIR},
            {"name": "out", "mountPath": OUTPUT_DIR},
            {"name": "shm", "mountPath": SHARED_MEMORY, "readOnly": not profile.shm_bytes},
        ],
    }


def _common(name: str, image: str, uid: int, gid: int, seccomp: str) -> Body:
    return {
        "name": name,
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "securityContext": {
            "runAsUser": uid,
            "runAsGroup": gid,
            "runAsNonRoot": True,
            "privileged": False,
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
            "seccompProfile": {"type": "Localhost", "localhostProfile": seccomp}
            if seccomp
            else {"type": "RuntimeDefault"},
        },
        # The end of the log is all that is seen of its stderr: the broker may not read logs.
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }


def _build_resources(cpu: str, cpu_request: str, memory_bytes: int) -> Body:
    fixed = {"memory": str(memory_bytes), "ephemeral-storage": str(LOG_BYTES)}
    return {"limits": {"cpu": cpu, **fixed}, "requests": {"cpu": cpu_request, **fixed}}


def _build_volumes(plan: PairPlan) -> list[Body]:
    limits = plan.profile.limits
    sizes = {
        "sockets": MIB,
        "work": limits.work_dir_bytes,
        "out": limits.out_dir_bytes,
        "shm": plan.profile.shm_bytes or MIB,
    }
    return [{"name": name, "emptyDir": {"medium": "Memory", "sizeLimit": str(size)}} for name, size in sizes.items()]
