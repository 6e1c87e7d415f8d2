"""The Pod of a pair: what the restricted standard requires, its limits, and what no profile or message can express."""

import time
from dataclasses import replace
from typing import Any

import kubernetes_validate
import pytest

from everturn.execution.messages import RunLimits
from everturn.execution.profiles import ExecutionProfile
from exec_supervisor.broker.engine import PairPlan
from exec_supervisor.broker.kubernetes_bodies import DialPlan, PodOptions, build_pod
from exec_supervisor.broker.placement import parse_node_selector, parse_tolerations

PROFILE = ExecutionProfile(executor_image="exe:1", supervisor_image="sup:1", cpus=1.5, preload=("numpy", "pandas"))
PLAN = PairPlan("p1", "big_", PROFILE, "run é 1", int(time.time()) + 7200, 21_007)
DIAL = DialPlan("10.0.0.7:7444", "Y2VydA==", "secret-token")
ALL_OPTIONS = PodOptions(
    "everturn/executor.json",
    "gvisor",
    "broker-0",
    "1b7a",
    node_selector=parse_node_selector("pool=programs, kubernetes.io/arch=amd64"),
    tolerations=parse_tolerations("programs=only:NoSchedule, example.org/spot, empty=:NoExecute"),
    priority_class="programs",
)
VERSIONS = ("1.25", kubernetes_validate.latest_version())


def build(plan: PairPlan = PLAN, options: PodOptions = PodOptions()) -> dict[str, Any]:  # noqa: B008 - frozen
    return build_pod(plan, "b1", options, DIAL)


def both(pod: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    executor, supervisor = pod["spec"]["containers"]
    assert (executor["name"], supervisor["name"]) == ("executor", "supervisor")
    return executor, supervisor


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    "plan", [PLAN, replace(PLAN, run_id="", expires_s=4_000_000_000, profile=ExecutionProfile(shm_bytes=1 << 20))]
)
@pytest.mark.parametrize("options", [PodOptions(), ALL_OPTIONS])
def test_every_pod_matches_the_published_schemas(version: str, plan: PairPlan, options: PodOptions):
    pod = build(plan, options)

    kubernetes_validate.validate(pod, version, strict=True)
    assert 0 < pod["spec"]["activeDeadlineSeconds"] < 1 << 31


@pytest.mark.parametrize("options", [PodOptions(), ALL_OPTIONS])
def test_a_pod_meets_the_restricted_standard_and_has_nothing_of_the_cluster(options: PodOptions):
    pod = build(options=options)
    spec = pod["spec"]

    assert spec["automountServiceAccountToken"] is False
    assert (spec["restartPolicy"], spec["shareProcessNamespace"], spec["enableServiceLinks"]) == ("Never", False, False)
    assert not spec.keys() & {"hostNetwork", "hostPID", "hostIPC", "serviceAccountName", "nodeName", "initContainers"}
    assert {tuple(volume) for volume in spec["volumes"]} == {("name", "emptyDir")}
    for container in both(pod):
        security = container["securityContext"]
        assert security["runAsUser"] > 1000
        assert (security["runAsNonRoot"], security["allowPrivilegeEscalation"], security["privileged"]) == (
            True,
            False,
            False,
        )
        assert (security["readOnlyRootFilesystem"], security["capabilities"]) == (True, {"drop": ["ALL"]})
        assert security["seccompProfile"]["type"] in ("RuntimeDefault", "Localhost")
        assert container["resources"]["limits"].keys() == {"cpu", "memory", "ephemeral-storage"}
        assert not container.keys() & {"env", "envFrom", "ports", "lifecycle", "volumeDevices", "stdin"}


def test_the_executor_has_the_limits_of_its_profile_and_writable_folders_in_memory_only():
    executor, _ = both(pod := build())
    limits = RunLimits()

    assert executor["image"] == "exe:1"
    assert (executor["securityContext"]["runAsUser"], executor["securityContext"]["runAsGroup"]) == (21_007, 1001)
    assert executor["args"] == ["--unix-sockets-only"]
    assert executor["resources"]["limits"] | {"ephemeral-storage": ""} == {
        "cpu": "1500m",
        "memory": str(limits.memory_bytes),
        "ephemeral-storage": "",
    }
    assert {mount["mountPath"] for mount in executor["volumeMounts"] if not mount.get("readOnly")} == {
        "/workspace/work",
        "/workspace/out",
    }
    sizes = {volume["name"]: volume["emptyDir"] for volume in pod["spec"]["volumes"]}
    assert sizes["work"] == {"medium": "Memory", "sizeLimit": str(limits.work_dir_bytes)}
    assert sizes["out"]["sizeLimit"] == str(limits.out_dir_bytes)
    assert {volume["medium"] for volume in sizes.values()} == {"Memory"}


def test_only_a_pair_that_no_run_waits_for_imports_ahead_and_shared_memory_is_a_choice():
    profile = PROFILE.model_copy(update={"shm_bytes": 1 << 26})
    executor, _ = both(pod := build(replace(PLAN, run_id="", profile=profile)))

    assert executor["args"] == ["--unix-sockets-only", "--preload", "numpy,pandas"]
    assert [mount["readOnly"] for mount in executor["volumeMounts"] if mount["name"] == "shm"] == [False]
    assert {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": str(1 << 26)}} in pod["spec"]["volumes"]
    assert "everturn.io/run" not in pod["metadata"]["annotations"]
    assert pod["metadata"]["annotations"]["cluster-autoscaler.kubernetes.io/safe-to-evict"] == "true"


def test_only_the_supervisor_knows_the_token():
    executor, supervisor = both(build(options=ALL_OPTIONS))

    assert supervisor["args"][:6] == ["--executor-uid", "21007", "--dial", "10.0.0.7:7444", "--certificate", "Y2VydA=="]
    assert supervisor["args"][6:] == ["--pair", "p1", "--token", "secret-token", "--seccomp", "everturn/executor.json"]
    assert "secret-token" not in str(executor)
    assert supervisor["securityContext"]["runAsUser"] == 1002


def test_options_reach_the_pod_and_marks_name_broker_pair_and_pool():
    plain, chosen = build(), build(options=ALL_OPTIONS)
    executor, supervisor = both(chosen)

    assert plain["metadata"]["name"] == "everturn-run-p1"
    assert plain["metadata"]["labels"] == {
        "app.kubernetes.io/name": "everturn-run",
        "everturn.io/broker": "b1",
        "everturn.io/pair": "p1",
        "everturn.io/pool": "big",
    }
    assert plain["metadata"]["annotations"] == {
        "everturn.io/expires": str(PLAN.expires_s),
        "everturn.io/run": "run é 1",
    }
    assert "ownerReferences" not in plain["metadata"]
    assert chosen["metadata"]["ownerReferences"] == [
        {"apiVersion": "v1", "kind": "Pod", "name": "broker-0", "uid": "1b7a"}
    ]
    assert chosen["spec"]["runtimeClassName"] == "gvisor"
    guarded = replace(PLAN, profile=PROFILE.model_copy(update={"runtime": "kata"}))
    assert [build(guarded, options)["spec"]["runtimeClassName"] for options in (PodOptions(), ALL_OPTIONS)] == [
        "kata",
        "kata",
    ]
    assert not plain["spec"].keys() & {"runtimeClassName", "nodeSelector", "tolerations", "priorityClassName"}
    assert chosen["spec"]["nodeSelector"] == {"pool": "programs", "kubernetes.io/arch": "amd64"}
    assert chosen["spec"]["tolerations"] == [
        {"key": "programs", "operator": "Equal", "value": "only", "effect": "NoSchedule"},
        {"key": "example.org/spot", "operator": "Exists"},
        {"key": "empty", "operator": "Equal", "value": "", "effect": "NoExecute"},
    ]
    assert chosen["spec"]["priorityClassName"] == "programs"
    assert executor["securityContext"]["seccompProfile"] == {
        "type": "Localhost",
        "localhostProfile": "everturn/executor.json",
    }
    assert supervisor["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
