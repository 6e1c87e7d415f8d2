"""The manifests of deploy/k8s: what is applied follows the published schemas of Kubernetes, names settings that exist
and pages that are served, and lets nothing be privileged."""

import json
import os
import re
import shutil
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from copy import deepcopy
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any

import kubernetes_validate
import kustomize
import pytest
import yaml
from documents.chart import build_chart
from documents.setting_page import LIBRARY_VARIABLES, SettingGroup, list_settings
from kustomize import Document, load, load_env_file, name_of
from pydantic import BaseModel

from chat_proc.sandbox.containers import parse_address
from chat_proc.settings import OperatorConfig, WorkerSettings, load_config
from chat_proc.workspace.outside import MAX_FETCHED_BYTES
from everturn.core.readiness import CHECK_TIMEOUT_S
from everturn.execution.profiles import load_profiles
from everturn.history import repository
from exec_supervisor.broker.kubernetes_bodies import APP, LABEL_APP
from exec_supervisor.broker.listeners import build_tls_context
from exec_supervisor.broker.settings import BrokerSettings
from ingress.health import router
from ingress.settings import IngressSettings, MigrationSettings, SharedConfig
from ingress.settings import load_config as load_shared_config

REPOSITORY = Path(__file__).resolve().parents[3]
K8S = REPOSITORY / "deploy" / "k8s"
BASE = K8S / "base"
BROKER = K8S / "components" / "broker"
PODS = K8S / "components" / "broker-in-cluster"
GVISOR = K8S / "components" / "gvisor"
CHART = REPOSITORY / "deploy" / "helm" / "everturn"
GUIDE = REPOSITORY / "docs" / "how-to" / "run-on-kubernetes.md"
OPERATE = REPOSITORY / "docs" / "operate.md"
MIGRATIONS = REPOSITORY / "migrations" / "env.py"
RULES = REPOSITORY / "deploy" / "prometheus" / "everturn.rules.yml"
RULE_MANIFEST = K8S / "components" / "monitoring" / "rules.yaml"
OVERLAYS = tuple(sorted((K8S / "overlays").iterdir()))
BUILDS = {
    **{folder.name: (folder, ()) for folder in OVERLAYS},
    "broker": (K8S / "overlays" / "production", (BROKER,)),
    "pods": (K8S / "overlays" / "production", (PODS, GVISOR)),
}
"""What is tested: folders of overlays, with components that their files don't name."""
BUILT = {name: kustomize.build(folder, components=components) for name, (folder, components) in BUILDS.items()}
VERSIONS = ("1.25", "1.35", kubernetes_validate.latest_version())
"""Of Kubernetes: the oldest that the validator has, the oldest that is supported, and the newest."""
WORKER_PAGES = {"/livez", "/readyz"}
SERVICES = {"everturn-ingress": IngressSettings, "everturn-worker": WorkerSettings}
COMMANDS = {"everturn-migrate", "everturn-operator"}
"""Workloads that serve nothing."""
NOT_KUBERNETES = {"Cluster", "PrometheusRule", "ScaledObject", "ServiceMonitor"}
"""Kinds of other projects, whose schemas the validator does not have."""
OPERATOR_SECRETS = {"everturn-broker-client", "everturn-broker-server"}
"""Made by commands of the guide."""
CNPG_LABELS = {"cnpg.io/cluster": "everturn-postgres"}
"""Of the pods that the operator of Postgres makes."""
GROUPS = {"everturn": "all", "everturn-runs": "run"}
"""What the operator's page calls the pods of a namespace."""
FOREIGN_LABELS = ("everturn.io/may-call-ingress", "everturn.io/scrapes", "k8s-app", "app.kubernetes.io/name")
"""Of pods in other namespaces."""


def find(kind: str, built: str = "production") -> dict[str, Document]:
    """Those of one kind by their names."""
    return {each["metadata"]["name"]: each for each in BUILT[built] if each["kind"] == kind}


def is_workload(document: Document) -> bool:
    return document["kind"] in ("Deployment", "StatefulSet", "Job")


def find_workloads(*names: str) -> Iterator[tuple[str, Document]]:
    for name in names or BUILT:
        for each in filter(is_workload, BUILT[name]):
            yield f"{name}/{each['metadata']['name']}", each


WORKLOADS = dict(find_workloads())


def list_names(*classes: type[BaseModel]) -> set[str]:
    """Of all settings of these classes and of the libraries."""
    own = {line.name for each in classes for line in list_settings(SettingGroup("all", each), K8S)}
    return own | {variable.name for variable in LIBRARY_VARIABLES}


def load_settings(built: str) -> dict[str, str]:
    return find("ConfigMap", built)["everturn-settings"]["data"]


def load_secrets() -> dict[str, dict[str, str]]:
    return {each["metadata"]["name"]: each["stringData"] for each in load(K8S / "secrets.example.yaml")}


@cache
def print_secrets(**environment: str) -> dict[str, Document]:
    """What the command prints, by name."""
    run = subprocess.run(
        [sys.executable, "-I", K8S / "print_secrets.py"],
        env={"PATH": os.environ["PATH"], **environment},
        stdout=subprocess.PIPE,
        check=True,
        timeout=60,
    )
    return {each["metadata"]["name"]: each for each in json.loads(run.stdout)["items"]}


def validate(document: Document, version: str) -> None:
    """Strict: a field that the schema doesn't know is an error."""
    kubernetes_validate.validate(document, version, strict=True)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("built", BUILT)
def test_manifests_match_the_published_schemas(built: str, version: str):
    documents = [each for each in BUILT[built] if each["kind"] not in NOT_KUBERNETES]
    documents += [*load(K8S / "secrets.example.yaml"), *print_secrets().values()]

    assert len(documents) >= 20
    for document in documents:
        validate(document, version)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("spec", "replicas"), "two"),
        (("spec", "template", "spec", "containers", 0, "imagePullPolice"), "Always"),
        (("spec", "template", "spec", "containers", 0, "ports", 0, "containerPort"), "http"),
        (("spec", "selector"), []),
    ],
)
def test_a_manifest_with_a_wrong_field_does_not_pass(path: tuple[str | int, ...], value: object):
    document = deepcopy(find("Deployment")["everturn-ingress"])
    place: Any = document
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value

    with pytest.raises(kubernetes_validate.ValidationError):
        validate(document, VERSIONS[-1])


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")
@pytest.mark.parametrize("built", BUILT)
def test_kubectl_builds_the_same_documents(built: str, tmp_path: Path):
    folder, components = BUILDS[built]
    copy = shutil.copytree(REPOSITORY / "deploy", tmp_path / "deploy")
    file = copy / folder.relative_to(REPOSITORY / "deploy") / "kustomization.yaml"
    [content] = load(file)
    content["components"] += [f"../../components/{each.name}" for each in components]
    file.write_text(yaml.safe_dump(content))
    run = subprocess.run(
        ["kubectl", "kustomize", file.parent], stdout=subprocess.PIPE, text=True, check=True, timeout=60
    )
    names = "|".join(each["metadata"]["name"] for each in BUILT[built] if each["kind"] == "ConfigMap")
    documents = yaml.safe_load_all(re.sub(rf"\b({names})-[0-9a-z]{{10}}\b", r"\1", run.stdout))

    assert {name_of(each): each for each in documents} == {name_of(each): each for each in BUILT[built]}


@pytest.mark.parametrize("built", BUILT)
def test_pods_use_only_config_maps_and_secrets_that_exist(built: str):
    made = find("ConfigMap", built).keys() | load_secrets().keys() | print_secrets().keys()
    pods = [each["spec"]["template"]["spec"] for _, each in find_workloads(built)]
    sources = [source for pod in pods for each in pod["containers"] for source in each.get("envFrom", [])]
    used = {source["configMapRef"]["name"] for source in sources}
    used |= {volume["configMap"]["name"] for pod in pods for volume in pod["volumes"] if "configMap" in volume}
    used |= {volume["secret"]["secretName"] for pod in pods for volume in pod["volumes"] if "secret" in volume}
    several = [volume["projected"]["sources"] for pod in pods for volume in pod["volumes"] if "projected" in volume]
    used |= {source["secret"]["name"] for source in chain.from_iterable(several)}

    assert used - made <= OPERATOR_SECRETS
    assert find("ConfigMap", built).keys() - used <= {"everturn-dashboard"}
    assert all(name in GUIDE.read_text() for name in OPERATOR_SECRETS)


def test_a_broker_adds_its_settings_certificates_and_port_to_the_workers_only():
    before, brokered = ({name_of(each): each for each in BUILT[name]} for name in ("production", "broker"))
    worker = ("Deployment", "everturn-worker")
    [container] = brokered[worker]["spec"]["template"]["spec"]["containers"]
    settings = load_env_file(BROKER / "broker.env")
    policy = brokered["NetworkPolicy", "everturn-broker"]["spec"]

    assert {name for name in brokered if brokered[name] != before.get(name)} == {
        worker,
        ("ConfigMap", "everturn-broker"),
        ("NetworkPolicy", "everturn-broker"),
    }
    assert [source["configMapRef"]["name"] for source in container["envFrom"]] == [
        "everturn-settings",
        "everturn-broker",
    ]
    assert {mount["mountPath"] for mount in container["volumeMounts"]} >= {"/run/broker", "/run/secrets/everturn"}
    assert container["image"] and container["readinessProbe"]
    assert load_settings("production")["EXECUTION_MODE"] == "off"
    assert settings.keys() <= list_names(WorkerSettings)
    assert settings["BROKER_URL"].startswith("tls://")
    assert settings["BROKER_URL"].endswith(f":{policy['egress'][0]['ports'][0]['port']}")


def test_a_broker_in_the_cluster_has_the_settings_and_the_rights_that_its_driver_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    pod = find("Deployment", "pods")["everturn-broker"]["spec"]["template"]["spec"]
    [container] = pod["containers"]
    maps = find("ConfigMap", "pods")
    settings, worker = maps["everturn-broker-settings"]["data"], maps["everturn-broker"]["data"]
    profiles = maps["everturn-profiles"]["data"]["profiles.json"]
    (tmp_path / "profiles.json").write_text(profiles)
    variables = {
        each["name"]: each["value"].replace("$(POD_IP)", "10.1.2.3") for each in container["env"] if "value" in each
    }
    for name, value in (settings | variables).items():
        monkeypatch.setenv(name, value)
    read = BrokerSettings()
    [role], [binding] = find("Role", "pods").values(), find("RoleBinding", "pods").values()
    ports = {each["name"]: each["containerPort"] for each in container["ports"]}

    assert read.engine == "kubernetes"
    assert read.kubernetes_runtime_class == "gvisor"
    assert (settings | variables).keys() <= list_names(BrokerSettings)
    assert worker.keys() <= list_names(WorkerSettings)
    assert worker["EXECUTION_PROFILES"] == settings["EXECUTION_PROFILES"]
    assert ":latest" not in load_profiles(str(tmp_path / "profiles.json"))["default"].executor_image
    assert role["rules"] == [
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["create", "get", "list", "watch", "delete"]}
    ]
    assert binding["roleRef"]["name"] == role["metadata"]["name"]
    assert {each["metadata"]["namespace"] for each in (role, binding)} == {read.kubernetes_namespace}
    assert read.max_pairs < int(find("ResourceQuota", "pods")["everturn-runs"]["spec"]["hard"]["pods"])
    assert [each["name"] for each in binding["subjects"]] == [pod["serviceAccountName"]]
    assert ports == {
        "workers": int(read.tcp.rpartition(":")[2]),
        "dial": int(read.dial.rpartition(":")[2]),
        "metrics": int(read.metrics_listen.rpartition(":")[2]),
    }
    assert worker["BROKER_URL"] == f"tls://everturn-broker:{ports['workers']}"


def test_worker_and_broker_accept_the_certificates_that_the_guide_makes(tmp_path: Path):
    [block] = re.findall(r"```bash\n(.*?openssl.*?)```", GUIDE.read_text(), re.DOTALL)
    save = 'for each in "${@:7}"; do pair=${each#--from-file=}; cp "${pair#*=}" "$6/${pair%%=*}"; done'
    script = f'set -e; kubectl() {{ mkdir "$6"; {save}; }}\n{block}'
    subprocess.run(["bash", "-c", script], cwd=tmp_path, stderr=subprocess.PIPE, check=True, timeout=60)
    settings = BrokerSettings(BROKER_TCP="0.0.0.0:7443", BROKER_TLS_DIR=tmp_path / "everturn-broker-server")
    address = find("ConfigMap", "pods")["everturn-broker"]["data"]["BROKER_URL"]
    worker = parse_address(address, tmp_path / "everturn-broker-client")
    assert worker.tls is not None
    # As newer versions of Python do by themselves.
    worker.tls.verify_flags |= ssl.VERIFY_X509_STRICT
    to_worker, to_broker = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = worker.tls.wrap_bio(to_worker, to_broker, server_hostname=worker.host)
    server = build_tls_context(settings).wrap_bio(to_broker, to_worker, server_side=True)

    for side in (client, server, client, server):
        with suppress(ssl.SSLWantReadError):
            side.do_handshake()

    assert (client.version(), server.version()) == ("TLSv1.3", "TLSv1.3")
    assert server.getpeercert() is not None


def test_pods_of_programs_connect_to_nothing_but_their_broker():
    policies = [each for each in BUILT["pods"] if each["kind"] == "NetworkPolicy"]
    [own] = [each["spec"] for each in policies if each["metadata"]["namespace"] == "everturn-runs"]
    [rule] = own["egress"]
    [peer] = rule["to"]

    assert own["podSelector"] == {}
    assert own["policyTypes"] == ["Ingress", "Egress"] and "ingress" not in own
    assert peer["namespaceSelector"]["matchLabels"] == {"kubernetes.io/metadata.name": "everturn"}
    assert peer["podSelector"]["matchLabels"] == {LABEL_APP: "everturn-broker"}
    assert rule["ports"] == [{"protocol": "TCP", "port": 7444}]
    assert not [each for each in BUILT["pods"] if each["kind"] == "Secret"]


def list_violations(pod: Document) -> Iterator[str]:
    """What the restricted Pod Security Standard forbids, and what we forbid ourselves."""
    security = pod.get("securityContext", {})
    if security.get("runAsNonRoot") is not True or not security.get("runAsUser"):
        yield "runs as root"
    if security.get("seccompProfile") != {"type": "RuntimeDefault"}:
        yield "no seccomp profile"
    if pod.get("automountServiceAccountToken") is not (pod.get("serviceAccountName", "default") != "default"):
        yield "has a token that it does not need"
    yield from (f"uses {field}" for field in ("hostNetwork", "hostPID", "hostIPC", "initContainers") if field in pod)
    for container in pod["containers"]:
        if container.get("securityContext") != {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }:
            yield "has privileges, or can write"
        if any(container["resources"].get(each, {}).keys() != {"cpu", "memory"} for each in ("limits", "requests")):
            yield "has no requests or limits"
        if any("hostPort" in port for port in container.get("ports", [])):
            yield "uses a port of the node"
    for volume in pod["volumes"]:
        if not volume.keys() - {"name"} <= {"secret", "configMap", "emptyDir", "projected"}:
            yield "mounts something of the node"
        if "emptyDir" in volume and "sizeLimit" not in volume["emptyDir"]:
            yield "can fill the node's disk"


@pytest.mark.parametrize("workload", WORKLOADS)
def test_every_pod_is_as_the_restricted_standard_wants_it(workload: str):
    assert not list(list_violations(WORKLOADS[workload]["spec"]["template"]["spec"]))


@pytest.mark.parametrize(("workload", "fetched"), [("everturn-ingress", 0), ("everturn-worker", MAX_FETCHED_BYTES)])
def test_temporary_files_have_room_for_all_repositories(workload: str, fetched: int):
    """A kubelet evicts a Pod that exceeds the limit, and the file system that a Pod sees is the node's."""
    volumes = find("Deployment")[workload]["spec"]["template"]["spec"]["volumes"]
    (limit,) = [each["emptyDir"]["sizeLimit"] for each in volumes if each["name"] == "tmp"]
    kept = repository.MAX_KEPT_BYTES + repository.BUILDS * repository.LIMITS.disk_bytes

    assert int(limit.removesuffix("Gi")) << 30 > kept + fetched


@pytest.mark.parametrize(
    ("change", "violation"),
    [
        ({"securityContext": {"runAsUser": 0}}, "runs as root"),
        ({"securityContext": {"seccompProfile": {"type": "Unconfined"}}}, "no seccomp profile"),
        ({"automountServiceAccountToken": True}, "has a token that it does not need"),
        ({"hostNetwork": True}, "uses hostNetwork"),
        ({"containers": [{"name": "worker", "securityContext": {"privileged": True}}]}, "has privileges, or can write"),
        ({"containers": [{"name": "worker", "resources": {"limits": {"cpu": None}}}]}, "has no requests or limits"),
        ({"containers": [{"name": "worker", "ports": [{"hostPort": 80}]}]}, "uses a port of the node"),
        ({"volumes": [{"name": "tmp", "emptyDir": None, "hostPath": {"path": "/"}}]}, "mounts something of the node"),
        ({"volumes": [{"name": "tmp", "emptyDir": {"sizeLimit": None}}]}, "can fill the node's disk"),
    ],
)
def test_a_pod_that_may_more_does_not_pass(change: Document, violation: str):
    pod = find("Deployment")["everturn-worker"]["spec"]["template"]["spec"]

    assert list(list_violations(kustomize.merge(pod, change))) == [violation]


@pytest.mark.parametrize("built", BUILT)
def test_every_namespace_enforces_the_restricted_standard(built: str):
    namespaces = find("Namespace", built)

    assert {each["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] for each in namespaces.values()} == {
        "restricted"
    }
    assert {each["metadata"].get("namespace", "everturn") for each in BUILT[built]} == namespaces.keys()
    assert {each["metadata"]["namespace"] for each in BUILT[built] if is_workload(each)} == {"everturn"}


@pytest.mark.parametrize("workload", WORKLOADS)
def test_every_image_that_is_applied_has_a_version(workload: str):
    for container in WORKLOADS[workload]["spec"]["template"]["spec"]["containers"]:
        assert re.search(r":[\w.-]+$|@sha256:[0-9a-f]{64}$", container["image"])
        assert not container["image"].endswith(":latest")


@pytest.mark.parametrize("workload", [each for each in WORKLOADS if each.partition("/")[2] not in COMMANDS])
def test_every_server_has_probes_on_ports_and_pages_that_exist(workload: str):
    name = workload.partition("/")[2]
    (container,) = WORKLOADS[workload]["spec"]["template"]["spec"]["containers"]
    probes = {probe: container[f"{probe}Probe"] for probe in ("startup", "liveness", "readiness")}
    asked = [probe[kind] for probe in probes.values() for kind in ("httpGet", "tcpSocket") if kind in probe]
    ingress_pages = {str(getattr(route, "path", "")) for route in router.routes}

    assert {each["port"] for each in asked} <= {port["name"] for port in container["ports"]}
    if name == "everturn-broker":
        assert {each.get("path", "/metrics") for each in asked} == {"/metrics"}
    if name in SERVICES:
        assert {each["path"] for each in asked} <= (ingress_pages if name == "everturn-ingress" else WORKER_PAGES)
        # Of ingresses only the start depends on other servers: an outage must not take all of them out of the Service.
        gate = "startup" if name == "everturn-ingress" else "readiness"
        assert [probe for probe in probes if probes[probe]["httpGet"]["path"] == "/readyz"] == [gate]
        assert probes[gate]["timeoutSeconds"] > CHECK_TIMEOUT_S


@pytest.mark.parametrize(("name", "settings"), SERVICES.items())
def test_a_pod_gets_longer_to_end_than_it_drains_and_knows_its_settings(name: str, settings: type[BaseModel]):
    pod = find("Deployment")[name]["spec"]["template"]["spec"]
    variables = {each["name"]: each["value"] for each in pod["containers"][0]["env"]}

    hook = pod["containers"][0].get("lifecycle", {}).get("preStop", {}).get("exec", {"command": ["sleep", "0"]})
    [program, sleep_s] = hook["command"]

    assert program == "sleep"
    assert pod["terminationGracePeriodSeconds"] >= settings.model_fields["drain_timeout_s"].default + int(sleep_s) + 10
    assert variables.keys() <= list_names(settings)


def test_a_worker_listens_on_the_port_that_its_probes_and_services_use():
    [container] = find("Deployment")["everturn-worker"]["spec"]["template"]["spec"]["containers"]
    listen = {each["name"]: each["value"] for each in container["env"]}["METRICS_LISTEN"]

    assert container["ports"] == [{"name": "health", "containerPort": int(listen.rpartition(":")[2])}]


@pytest.mark.parametrize("built", BUILT)
def test_the_migration_job_gets_every_variable_that_the_migrations_read(built: str, monkeypatch: pytest.MonkeyPatch):
    [container] = find("Job", built)["everturn-migrate"]["spec"]["template"]["spec"]["containers"]
    files = load_secrets()["everturn-operator"]
    given = {each["name"] for each in container.get("env", [])} | files.keys()
    read = set(re.findall(r'environ(?:\.get\(|\[)"(\w+)"', MIGRATIONS.read_text()))

    assert read >= {"DATABASE_OWNER_URL", "RETENTION_DAYS"}
    assert read - given <= list_names(WorkerSettings)
    assert {"configMapRef": {"name": "everturn-settings"}} in container["envFrom"]
    for name, value in (load_settings(built) | files).items():
        monkeypatch.setenv(name, value)
    assert MigrationSettings()  # type: ignore[call-arg] the environment gives the arguments


@pytest.mark.parametrize("built", BUILT)
def test_deployments_of_services_can_be_applied_after_the_migration(built: str):
    later = [
        name_of(each)
        for each in BUILT[built]
        if each["metadata"].get("labels", {}).get("everturn.io/needs") == "migration"
    ]

    scaled = [("ScaledObject", name) for name in find("ScaledObject", built)]
    broker = ["everturn-broker"] if built == "pods" else []
    [job] = find("Job", built).values()
    assert set(later) == {*scaled, *(("Deployment", name) for name in (*SERVICES, *broker))}
    assert job["metadata"]["labels"]["everturn.io/step"] == "migration"
    for chosen in ("everturn.io/needs!=migration", "everturn.io/step!=migration"):
        assert f"kubectl apply -k deploy/k8s/overlays/production -l '{chosen}'" in GUIDE.read_text()


@pytest.mark.parametrize("built", BUILT)
def test_only_one_autoscaler_sets_how_many_pods_a_deployment_has(built: str):
    scalers = [*find("HorizontalPodAutoscaler", built).values(), *find("ScaledObject", built).values()]
    scaled = [each["spec"]["scaleTargetRef"]["name"] for each in scalers]
    deployments = find("Deployment", built)

    assert len(scaled) == len(set(scaled))
    assert {name for name in deployments if "replicas" not in deployments[name]["spec"]} == set(scaled)


def test_ingresses_scale_before_they_reject_streams():
    triggers = find("ScaledObject")["everturn-ingress"]["spec"]["triggers"]
    [streams] = [each for each in triggers if "ingress_streams" in each["metadata"].get("query", "")]

    assert int(streams["metadata"]["threshold"]) < IngressSettings.model_fields["connections_max"].default / 2
    assert {each["type"] for each in triggers} == {"cpu", "prometheus"}


def test_the_alert_rules_are_those_of_prometheus():
    rules = "".join(f"  {line}" for line in RULES.read_text().splitlines(keepends=True) if not line.startswith("#"))
    text = (
        f"# Written from deploy/prometheus/{RULES.name} by UPDATE_GOLDEN=1 make test TESTS=tests/unit/deploy_k8s\n"
        "apiVersion: monitoring.coreos.com/v1\nkind: PrometheusRule\n"
        f"metadata:\n  name: everturn\n  namespace: everturn\nspec:\n{rules}"
    )
    if os.environ.get("UPDATE_GOLDEN") == "1":
        RULE_MANIFEST.write_text(text)

    assert RULE_MANIFEST.read_text() == text, "rewrite it with UPDATE_GOLDEN=1 make test TESTS=tests/unit/deploy_k8s"


def test_prometheus_finds_the_metrics_of_every_service_under_the_job_that_the_alerts_expect():
    services = find("Service", "pods")
    for name, monitor in find("ServiceMonitor").items():
        wanted = monitor["spec"]["selector"]["matchLabels"].items()
        [service] = [each for each in services.values() if wanted <= each["metadata"].get("labels", {}).items()]
        [endpoint] = monitor["spec"]["endpoints"]

        # Without `jobLabel`, the job is named after the Service.
        assert service["metadata"]["name"] == name
        assert endpoint["port"] in {port["name"] for port in service["spec"]["ports"]}
        assert endpoint["path"] == "/metrics"
    assert find("ServiceMonitor").keys() == {*SERVICES, "everturn-broker"}


@pytest.mark.parametrize("built", BUILT)
def test_the_settings_and_secrets_that_are_named_exist(built: str):
    settings, secrets = load_settings(built), load_secrets()

    assert settings.keys() <= list_names(IngressSettings, WorkerSettings)
    assert secrets["everturn-ingress"].keys() <= list_names(IngressSettings)
    assert secrets["everturn-worker"].keys() <= list_names(WorkerSettings)
    assert secrets["everturn-operator"].keys() <= list_names(MigrationSettings)


def test_printed_secrets_fit_the_overlay_for_trials():
    keys = {"ANTHROPIC_API_KEY": "key-1", "AWS_ACCESS_KEY_ID": "key-2", "PATH_TO": "no"}
    printed = {name: each["stringData"] for name, each in print_secrets(**keys).items()}
    again = {name: each["stringData"] for name, each in print_secrets().items()}
    services, [cluster] = find("Service", "small"), find("Cluster", "small").values()
    operator = printed["everturn-operator"]
    hosts = set(re.findall(r"@([\w-]+):", " ".join(chain.from_iterable(each.values() for each in printed.values()))))

    assert hosts == {"everturn-valkey", f"{cluster['metadata']['name']}-rw"}
    assert hosts & services.keys() == {"everturn-valkey"}
    assert cluster["spec"]["superuserSecret"]["name"] in printed
    assert printed["everturn-ingress"].keys() <= list_names(IngressSettings)
    assert printed["everturn-worker"].keys() <= list_names(WorkerSettings)
    assert printed["everturn-worker"]["ANTHROPIC_API_KEY"] == "key-1"
    assert "ANTHROPIC_API_KEY" not in printed["everturn-ingress"]
    assert printed["everturn-ingress"]["AWS_ACCESS_KEY_ID"] == "key-2"
    assert operator["DATABASE_INGRESS_URL"] == printed["everturn-ingress"]["DATABASE_URL"]
    assert operator["DATABASE_WORKER_URL"] == printed["everturn-worker"]["DATABASE_URL"]
    assert printed["everturn-postgres-superuser"]["password"] in operator["DATABASE_ADMIN_URL"]
    assert "user everturn_worker reset on #" in printed["everturn-valkey"]["valkey.conf"]
    assert not {value for each in again.values() for value in each.values()} & {
        value for each in printed.values() for value in each.values() if value != "postgres"
    }


@pytest.mark.parametrize("built", BUILT)
def test_ingress_and_worker_get_the_configuration_that_their_setting_names(built: str, tmp_path: Path):
    path = Path(load_settings(built)["EVERTURN_CONFIG"])

    for name in SERVICES:
        pod = find("Deployment", built)[name]["spec"]["template"]["spec"]
        (mounted,) = [each for each in pod["containers"][0]["volumeMounts"] if each["mountPath"] == str(path.parent)]
        (volume,) = [each for each in pod["volumes"] if each["name"] == mounted["name"]]
        config = tmp_path / name
        config.write_text(find("ConfigMap", built)[volume["configMap"]["name"]]["data"][path.name])
        assert mounted["readOnly"] is True
        assert load_config(config) == OperatorConfig()
        assert load_shared_config(config) == SharedConfig()


def list_guide_blocks() -> list[Document]:
    return [yaml.safe_load(text) for text in re.findall(r"^ *```yaml\n(.*?)```", GUIDE.read_text(), re.DOTALL | re.M)]


@pytest.mark.parametrize("version", VERSIONS)
def test_what_the_guide_adds_matches_the_published_schemas(version: str):
    whole = [each for each in list_guide_blocks() if each.get("kind") in ("Ingress", "NetworkPolicy")]

    assert [each["metadata"]["name"] for each in whole] == ["everturn", "everturn-gateway", "everturn-models"]
    for each in whole:
        validate(each, version)


def test_one_node_has_room_for_the_overlay_for_trials():
    pods = [each["spec"]["template"]["spec"] for each in find("Deployment", "small").values()]
    pods = [pod for pod in pods if pod["containers"][0]["name"] != "operator"]
    pods += [each["spec"]["template"]["spec"] for each in find("StatefulSet", "small").values()]
    requests = [container["resources"]["requests"] for pod in pods for container in pod["containers"]]
    requests += [each["spec"]["resources"]["requests"] for each in find("Cluster", "small").values()]
    mib = {"Gi": 1024, "Mi": 1}
    cpus = sum(int(each["cpu"].removesuffix("m")) for each in requests) / 1000
    memory = sum(int(each["memory"][:-2]) * mib[each["memory"][-2:]] for each in requests) / 1024

    assert f"its Pods request {cpus:g} CPUs and {memory:g} GiB" in GUIDE.read_text()


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")
def test_the_guides_patches_choose_a_role_and_nodes(tmp_path: Path):
    patches = [patch for each in list_guide_blocks() for patch in each.get("patches", [])]
    shutil.copytree(REPOSITORY / "deploy", tmp_path / "deploy")
    file = tmp_path / "deploy" / "k8s" / "overlays" / "small" / "kustomization.yaml"
    [content] = load(file)
    content["patches"] += patches
    file.write_text(yaml.safe_dump(content))
    run = subprocess.run(
        ["kubectl", "kustomize", file.parent], stdout=subprocess.PIPE, text=True, check=True, timeout=60
    )
    pods = {
        each["metadata"]["name"]: each["spec"]["template"]["spec"]
        for each in yaml.safe_load_all(run.stdout)
        if is_workload(each)
    }

    assert len(pods) == sum(is_workload(each) for each in BUILT["small"])
    assert all(pod["nodeSelector"] == {"pool": "chat"} and pod["priorityClassName"] == "chat" for pod in pods.values())
    assert pods["everturn-worker"]["serviceAccountName"] == "everturn-worker"


def test_workers_find_bundles_where_their_setting_says_and_the_guide_fills_the_folder():
    deployment = deepcopy(find("Deployment")["everturn-worker"])
    [container] = deployment["spec"]["template"]["spec"]["containers"]
    folder = {each["name"]: each.get("value") for each in container["env"]}["BUNDLES_DIR"]
    [mounted] = [each for each in container["volumeMounts"] if each["mountPath"] == folder]
    blocks = list_guide_blocks()
    [generator] = [each for each in blocks if "everturn-bundle-support" in str(each) and "configMapGenerator" in each]
    [patch] = [each for each in blocks if "everturn-bundle-support" in str(each) and "spec" in each]
    patched = kustomize.merge(deployment, patch)
    [own] = [each for each in patched["spec"]["template"]["spec"]["volumes"] if each["name"] == mounted["name"]]

    assert mounted["readOnly"] is True
    assert name_of(patch) == name_of(deployment)
    assert own.keys() == {"name", "projected"}
    for version in VERSIONS:
        validate(patched, version)
    [made], [source] = generator["configMapGenerator"], own["projected"]["sources"]
    assert source["configMap"]["name"] == made["name"]
    assert made["options"] == {"disableNameSuffixHash": True}
    assert made["namespace"] == deployment["metadata"]["namespace"]
    assert [each["key"] for each in source["configMap"]["items"]] == [Path(file).name for file in made["files"]]
    assert {Path(each["path"]).parent for each in source["configMap"]["items"]} == {Path("support")}


def test_the_secrets_of_bundles_are_beside_those_of_the_worker():
    deployment = deepcopy(find("Deployment")["everturn-worker"])
    [patch] = [each for each in list_guide_blocks() if "my-bundles" in str(each)]
    patched = kustomize.merge(deployment, patch)
    [own] = [each for each in patched["spec"]["template"]["spec"]["volumes"] if each["name"] == "secrets"]

    assert name_of(patch) == name_of(deployment)
    assert own.keys() == {"name", "projected"}
    assert [each["secret"]["name"] for each in own["projected"]["sources"]] == ["everturn-worker", "my-bundles"]
    for version in VERSIONS:
        validate(patched, version)


@pytest.mark.parametrize("built", ["small", "production"])
def test_an_ingress_starts_with_these_settings(built: str, monkeypatch: pytest.MonkeyPatch):
    filled = load_secrets()["everturn-ingress"] | {"SIGNING_SECRET": "0123456789abcdef" * 4}
    secret = print_secrets()["everturn-ingress"]["stringData"] if built == "small" else filled
    for name, value in (load_settings(built) | secret).items():
        monkeypatch.setenv(name, value)

    assert IngressSettings().mode == "production"  # type: ignore[call-arg] the environment gives the arguments


def test_the_chart_is_written_from_the_manifests():
    files = build_chart(K8S)
    if os.environ.get("UPDATE_GOLDEN") == "1":
        for path, text in files.items():
            (CHART / path).parent.mkdir(parents=True, exist_ok=True)
            (CHART / path).write_text(text)

    assert {file.relative_to(CHART).as_posix() for file in CHART.rglob("*") if file.is_file()} == files.keys()
    for path, text in files.items():
        assert (CHART / path).read_text() == text, (
            "rewrite it with UPDATE_GOLDEN=1 make test TESTS=tests/unit/deploy_k8s"
        )


@pytest.mark.skipif(shutil.which("helm") is None, reason="helm is not installed")
@pytest.mark.parametrize("built", ["production", "broker", "pods"])
def test_helm_builds_the_same_documents_as_the_overlay(built: str, tmp_path: Path):
    brokers = {"broker": {"broker": {"enabled": True}}, "pods": {"brokerInCluster": {"enabled": True}}}
    values: Document = {"keda": {"enabled": True}, "monitoring": {"enabled": True}, **brokers.get(built, {})}
    if built == "pods":
        values["brokerInCluster"]["settings"] = {"KUBERNETES_RUNTIME_CLASS": "gvisor"}
    values |= {"pods": {"priorityClassName": "chat"}}
    values |= {"config": find("ConfigMap", built)["everturn-config"]["data"]["everturn.toml"]}
    (tmp_path / "values.yaml").write_text(yaml.safe_dump(values))
    command = ["helm", "template", "any", CHART, "--namespace", "everturn", "--values", tmp_path / "values.yaml"]
    run = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=60)
    documents = {name_of(each): each for each in yaml.safe_load_all(run.stdout) if each}
    early = documents.pop(("ConfigMap", "everturn-migrate-settings"))

    for each in filter(is_workload, documents.values()):
        assert each["spec"]["template"]["spec"].pop("priorityClassName") == "chat"
    assert early["data"] == documents["ConfigMap", "everturn-settings"]["data"]
    for each in documents.values():
        each["metadata"].setdefault("namespace", "everturn")
    broker = ["everturn-broker"] if built == "pods" else []
    for name in (*(("Deployment", name) for name in (*SERVICES, *broker)), ("StatefulSet", "everturn-clamd")):
        template = documents[name]["spec"]["template"]
        assert template["metadata"].pop("annotations").keys() == {"checksum/settings"}
    job = documents["Job", "everturn-migrate"]
    assert job["metadata"].pop("annotations")["helm.sh/hook"] == "pre-install,pre-upgrade"
    [container] = job["spec"]["template"]["spec"]["containers"]
    container["envFrom"] = [{"configMapRef": {"name": "everturn-settings"}}]
    expected = deepcopy({name_of(each): each for each in BUILT[built]})
    del expected["Namespace", "everturn"]
    if built == "pods":
        expected["Namespace", "everturn-runs"]["metadata"]["namespace"] = "everturn"
        for side in (documents, expected):
            side["ConfigMap", "everturn-profiles"]["data"] = json.loads(
                side["ConfigMap", "everturn-profiles"]["data"]["profiles.json"]
            )
    assert documents == expected


@pytest.mark.skipif(shutil.which("helm") is None, reason="helm is not installed")
def test_helm_puts_a_broker_of_the_cluster_beside_a_release_of_any_namespace():
    command = ["helm", "template", "any", CHART, "--namespace", "chat", "--set", "brokerInCluster.enabled=true"]
    run = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=60)
    documents = {name_of(each): each for each in yaml.safe_load_all(run.stdout) if each}
    [subject] = documents["RoleBinding", "everturn-broker"]["subjects"]
    [rule] = documents["NetworkPolicy", "everturn-runs"]["spec"]["egress"]
    both = subprocess.run([*command, "--set", "broker.enabled=true"], capture_output=True, check=False, timeout=60)

    assert subject["namespace"] == "chat"
    assert rule["to"][0]["namespaceSelector"]["matchLabels"] == {"kubernetes.io/metadata.name": "chat"}
    assert {each["metadata"].get("namespace") for each in documents.values()} == {None, "everturn-runs"}
    assert b"broker and brokerInCluster can't both be enabled." in both.stderr


@pytest.mark.skipif(shutil.which("helm") is None, reason="helm is not installed")
@pytest.mark.parametrize("value", ["settings.BODIES_MAX_BYTES", "brokerInCluster.settings.BROKER_MAX_PAIRS"])
def test_helm_rejects_a_setting_that_it_would_write_in_another_way(value: str):
    command = ["helm", "template", "any", CHART, "--set", f"brokerInCluster.enabled=true,{value}=512000000"]
    run = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)

    assert run.returncode != 0
    assert f"{value} must be a string: quote its value." in run.stderr


def list_policy_sides(built: str) -> Iterator[tuple[Document, str, Document]]:
    """Each rule of each policy with the direction."""
    for policy in find("NetworkPolicy", built).values():
        for direction in ("ingress", "egress"):
            for rule in policy["spec"].get(direction, []):
                yield policy, direction, rule


def list_pod_labels(built: str) -> list[dict[str, str]]:
    labels = [each["spec"]["template"]["metadata"]["labels"] for _, each in find_workloads(built)]
    return [*labels, CNPG_LABELS]


@pytest.mark.parametrize("built", BUILT)
def test_every_pod_selector_matches_a_pod(built: str):
    labels = list_pod_labels(built)
    selectors = [each["spec"]["selector"] for each in find("Service", built).values()]
    selectors += [each["spec"]["selector"]["matchLabels"] for each in find("PodDisruptionBudget", built).values()]
    selectors += [each["spec"]["podSelector"].get("matchLabels", {}) for each in find("NetworkPolicy", built).values()]
    peers = [peer for _, _, rule in list_policy_sides(built) for peer in (*rule.get("from", []), *rule.get("to", []))]
    selectors += [peer["podSelector"]["matchLabels"] for peer in peers if peer.keys() == {"podSelector"}]
    foreign = [peer["podSelector"]["matchLabels"] for peer in peers if "namespaceSelector" in peer]
    runs = [each for each in foreign if each.get(LABEL_APP) == APP]

    assert len(selectors) >= 8
    for selector in selectors:
        assert any(selector.items() <= label.items() for label in labels), selector
    assert {key for selector in foreign for key in selector} <= set(FOREIGN_LABELS)
    assert bool(runs) == (built == "pods")


@pytest.mark.parametrize("built", BUILT)
def test_nothing_connects_unless_a_policy_names_it(built: str):
    policies = find("NetworkPolicy", built)

    assert policies["everturn-closed"]["spec"] == {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}
    for policy, direction, rule in list_policy_sides(built):
        assert direction.capitalize() in policy["spec"]["policyTypes"]
        assert rule["ports"], "a rule without ports allows all of them"
        assert direction == "egress" or rule["from"], "a rule without sources allows all of them"


@pytest.mark.parametrize("built", BUILT)
def test_policies_open_only_ports_on_which_a_container_listens(built: str):
    for policy, direction, rule in list_policy_sides(built):
        selector = policy["spec"]["podSelector"].get("matchLabels", {})
        if direction == "egress" or selector == CNPG_LABELS:
            continue
        [pod] = [
            each["spec"]["template"]
            for _, each in find_workloads(built)
            if selector.items() <= each["spec"]["template"]["metadata"]["labels"].items()
        ]
        listening = {port["name"] for container in pod["spec"]["containers"] for port in container["ports"]}
        assert {port["port"] for port in rule["ports"]} <= listening


def load_connections() -> set[tuple[str, int]]:
    """Who connects to which port, as the operator's page says."""
    table = OPERATE.read_text().partition("| from | to | port |")[2].partition("\n\n")[0]
    rows = [[cell.strip() for cell in line.split("|")[1:4]] for line in table.splitlines()[2:]]
    return {
        (name.strip(), int(port))
        for sources, _, ports in rows
        for name in sources.split(",")
        for port in ports.split(",")
    }


@pytest.mark.parametrize("built", BUILT)
def test_pods_connect_only_to_ports_that_the_operators_page_names(built: str):
    known = load_connections()
    opened = {
        (policy["spec"]["podSelector"].get("matchLabels", {}).get("app.kubernetes.io/name", GROUPS[name]), port["port"])
        for policy, direction, rule in list_policy_sides(built)
        for name in [policy["metadata"]["namespace"]]
        if direction == "egress" and policy["spec"]["podSelector"].get("matchLabels") != CNPG_LABELS
        for port in rule["ports"]
    }

    assert opened
    assert {(name.removeprefix("everturn-"), port) for name, port in opened} <= known


def test_workers_reach_no_private_network():
    rules = [rule for policy, direction, rule in list_policy_sides("production") if "everturn-worker" in str(policy)]
    [web] = [rule for rule in rules if {"protocol": "TCP", "port": 443} in rule["ports"]]
    [four, six] = [peer["ipBlock"] for peer in web["to"]]

    assert set(four["except"]) >= {"10.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.168.0.0/16"}
    assert set(six["except"]) >= {"fc00::/7", "fe80::/10"}


def test_no_pod_gets_the_socket_of_an_engine():
    assert "docker.sock" not in "".join(file.read_text() for file in K8S.rglob("*.yaml"))


def test_every_file_is_part_of_what_is_applied():
    used = {K8S / "secrets.example.yaml"}
    for file in K8S.rglob("kustomization.yaml"):
        [content] = load(file)
        named = [*content.get("resources", []), *(each["path"] for each in content.get("patches", []))]
        generators = content.get("configMapGenerator", [])
        named += chain.from_iterable([*each.get("files", []), *each.get("envs", [])] for each in generators)
        used |= {file, *(file.parent / name for name in named)}

    files = {file for file in K8S.rglob("*") if file.suffix in (".yaml", ".env", ".toml", ".json")}
    assert files == {file for file in used if file.is_file()}
