"""The manifests of deploy/k8s: what is applied follows the published schemas of Kubernetes, names settings that exist
and pages that are served, and lets nothing be privileged."""

import re
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from documents.setting_page import LIBRARY_VARIABLES, SettingGroup, list_settings
from pydantic import BaseModel

from chat_proc.settings import OperatorConfig, WorkerSettings, load_config
from ingress.health import router
from ingress.settings import IngressSettings, MigrationSettings, SharedConfig
from ingress.settings import load_config as load_shared_config

K8S = Path(__file__).resolve().parents[3] / "deploy" / "k8s"
BASE = K8S / "base"
GUIDE = K8S.parents[1] / "docs" / "how-to" / "run-on-kubernetes.md"
MIGRATIONS = K8S.parents[1] / "migrations" / "env.py"
OVERLAYS = (BASE, K8S / "broker")
VERSIONS = ("1.25", kubernetes_validate.latest_version())
"""Of Kubernetes: the oldest that the guide names, and the latest whose schemas the checker has."""
WORKER_PAGES = {"/livez", "/readyz"}
MERGE_KEYS = {"containers": "name", "volumes": "name", "env": "name", "volumeMounts": "mountPath"}
"""Lists that a patch adds to, by what names an entry; as in Kubernetes, it replaces every other list."""
KNOWN_FIELDS = {"apiVersion", "kind", "namespace", "resources", "configMapGenerator", "labels", "patches"}


def load_documents(place: Path) -> list[dict[str, Any]]:
    """Of a file, or of all files of a folder but its kustomization."""
    files = sorted(place.glob("*.yaml")) if place.is_dir() else [place]
    files = [file for file in files if file.name != "kustomization.yaml"]
    return [document for file in files for document in yaml.safe_load_all(file.read_text())]


DOCUMENTS = load_documents(BASE)


def find(kind: str) -> dict[str, dict[str, Any]]:
    """Those of one kind by their names."""
    return {each["metadata"]["name"]: each for each in DOCUMENTS if each["kind"] == kind}


def find_pods() -> Iterator[tuple[str, dict[str, Any]]]:
    for each in DOCUMENTS:
        if each["kind"] in ("Deployment", "Job"):
            yield each["metadata"]["name"], each["spec"]["template"]["spec"]


def list_names(*classes: type[BaseModel]) -> set[str]:
    """Of all settings of these classes and of the libraries."""
    own = {line.name for each in classes for line in list_settings(SettingGroup("all", each), K8S)}
    return own | {variable.name for variable in LIBRARY_VARIABLES}


def load_env_file(file: Path) -> dict[str, str]:
    return dict(line.split("=", 1) for line in file.read_text().splitlines())


def build_overlay(folder: Path) -> list[dict[str, Any]]:
    """What `kubectl apply -k` would send, but for the labels that it adds and the hashes behind names of ConfigMaps."""
    overlay = yaml.safe_load((folder / "kustomization.yaml").read_text())
    assert overlay.keys() <= KNOWN_FIELDS
    built: list[dict[str, Any]] = []
    for resource in overlay["resources"]:
        target = folder / resource
        built += build_overlay(target) if target.is_dir() else yaml.safe_load_all(target.read_text())
    for generator in overlay["configMapGenerator"]:
        data = {name: (folder / name).read_text() for name in generator.get("files", [])}
        for name in generator.get("envs", []):
            data |= load_env_file(folder / name)
        built.append({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": generator["name"]}, "data": data})
    for patch in overlay.get("patches", []):
        change = yaml.safe_load((folder / patch["path"]).read_text())
        [place] = [place for place, each in enumerate(built) if name_of(each) == name_of(change)]
        built[place] = merge(built[place], change)
    for each in built:
        if each["kind"] != "Namespace":
            each["metadata"]["namespace"] = overlay["namespace"]
    return built


def name_of(document: dict[str, Any]) -> tuple[str, str]:
    return document["kind"], document["metadata"]["name"]


def merge(base: Any, change: Any, field: str = "") -> Any:
    """A strategic merge patch without its directives."""
    if isinstance(base, dict) and isinstance(change, dict):
        return base | {key: merge(base[key], value, key) if key in base else value for key, value in change.items()}
    if isinstance(change, list) and (key := MERGE_KEYS.get(field)):
        by_key = {each[key]: each for each in base}
        return list((by_key | {each[key]: merge(by_key.get(each[key], {}), each) for each in change}).values())
    return change


def validate(document: dict[str, Any], version: str) -> None:
    """Strict: a field that the schema doesn't know is an error."""
    kubernetes_validate.validate(document, version, strict=True)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("folder", OVERLAYS, ids=lambda folder: folder.name)
def test_manifests_match_the_published_schemas(folder: Path, version: str):
    documents = build_overlay(folder) + load_documents(BASE / "secret.example.yaml")

    assert len(documents) >= 12
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


@pytest.mark.parametrize("folder", OVERLAYS, ids=lambda folder: folder.name)
def test_pods_use_only_documented_config_maps_and_secrets(folder: Path):
    documents = build_overlay(folder)
    made = {each["metadata"]["name"] for each in documents if each["kind"] == "ConfigMap"}
    made |= {each["metadata"]["name"] for each in load_documents(BASE / "secret.example.yaml")}
    made |= {"everturn-broker-client"} if folder.name == "broker" else set()
    pods = [each["spec"]["template"]["spec"] for each in documents if each["kind"] in ("Deployment", "Job")]
    settings = [source["configMapRef"]["name"] for pod in pods for source in pod["containers"][0].get("envFrom", [])]
    settings += [volume["configMap"]["name"] for pod in pods for volume in pod["volumes"] if "configMap" in volume]
    secrets = [volume["secret"]["secretName"] for pod in pods for volume in pod["volumes"] if "secret" in volume]

    assert {*settings, *secrets} == made
    assert "everturn-broker-client" in GUIDE.read_text()


def test_a_broker_adds_its_settings_and_certificates_to_the_workers_only():
    base, brokered = ({name_of(each): each for each in build_overlay(folder)} for folder in OVERLAYS)
    worker = ("Deployment", "everturn-worker")
    [container] = brokered[worker]["spec"]["template"]["spec"]["containers"]

    assert {name for name in brokered if brokered[name] != base.get(name)} == {worker, ("ConfigMap", "everturn-broker")}
    assert [source["configMapRef"]["name"] for source in container["envFrom"]] == [
        "everturn-settings",
        "everturn-broker",
    ]
    assert {mount["mountPath"] for mount in container["volumeMounts"]} >= {"/run/broker", "/run/secrets/everturn"}
    assert container["image"] and container["readinessProbe"]


@pytest.mark.parametrize(("name", "pod"), list(find_pods()), ids=lambda value: value if isinstance(value, str) else "")
def test_every_pod_is_as_the_restricted_standard_wants_it(name: str, pod: dict[str, Any]):
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["runAsUser"] == 10001
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert pod["automountServiceAccountToken"] is False
    assert not {"hostNetwork", "hostPID", "hostIPC"} & pod.keys()
    for container in pod["containers"]:
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert container["resources"]["limits"].keys() == {"cpu", "memory"}
    for volume in pod["volumes"]:
        assert volume.keys() - {"name"} <= {"secret", "configMap", "emptyDir"}
        assert "emptyDir" not in volume or volume["emptyDir"]["sizeLimit"]


@pytest.mark.parametrize(
    ("name", "settings"), [("everturn-ingress", IngressSettings), ("everturn-worker", WorkerSettings)]
)
def test_a_pod_gets_longer_to_end_than_it_drains_and_knows_its_settings(name: str, settings: type[BaseModel]):
    pod = find("Deployment")[name]["spec"]["template"]["spec"]
    variables = {each["name"]: each["value"] for each in pod["containers"][0]["env"]}

    hook = pod["containers"][0].get("lifecycle", {}).get("preStop", {}).get("exec", {"command": ["sleep", "0"]})
    [program, sleep_s] = hook["command"]

    assert program == "sleep"
    assert pod["terminationGracePeriodSeconds"] >= settings.model_fields["drain_timeout_s"].default + int(sleep_s) + 10
    assert variables.keys() <= list_names(settings)


def test_the_migration_job_gets_every_variable_that_the_migrations_read(monkeypatch: pytest.MonkeyPatch):
    [container] = find("Job")["everturn-migrate"]["spec"]["template"]["spec"]["containers"]
    files = find("Secret")["everturn-operator"]["stringData"]
    given = {each["name"] for each in container.get("env", [])} | files.keys()
    read = set(re.findall(r'environ(?:\.get\(|\[)"(\w+)"', MIGRATIONS.read_text()))

    assert read >= {"DATABASE_OWNER_URL", "RETENTION_DAYS"}
    assert read - given <= list_names(WorkerSettings)
    assert {"configMapRef": {"name": "everturn-settings"}} in container["envFrom"]
    for name, value in (load_env_file(BASE / "settings.env") | files).items():
        monkeypatch.setenv(name, value)
    assert MigrationSettings()  # type: ignore[call-arg] the environment gives the arguments


def test_only_the_autoscaler_sets_how_many_pods_it_scales():
    scaled = {each["spec"]["scaleTargetRef"]["name"] for each in find("HorizontalPodAutoscaler").values()}

    assert scaled
    assert not [name for name in scaled if "replicas" in find("Deployment")[name]["spec"]]


@pytest.mark.parametrize("name", ["everturn-ingress", "everturn-worker"])
def test_probes_ask_for_pages_that_are_served(name: str):
    (container,) = find("Deployment")[name]["spec"]["template"]["spec"]["containers"]
    served = (
        {str(getattr(route, "path", "")) for route in router.routes} if name == "everturn-ingress" else WORKER_PAGES
    )
    ports = {port["name"] for port in container["ports"]}
    asked = [container[f"{probe}Probe"]["httpGet"] for probe in ("startup", "liveness", "readiness")]

    assert {probe["path"] for probe in asked} <= served
    assert container["readinessProbe"]["httpGet"]["path"] == "/readyz"
    assert container["livenessProbe"]["httpGet"]["path"] != "/readyz"
    assert {probe["port"] for probe in asked} <= ports


def test_the_settings_and_secrets_that_are_named_exist():
    shared = load_env_file(BASE / "settings.env")
    secrets = find("Secret")

    assert shared.keys() <= list_names(IngressSettings, WorkerSettings)
    assert secrets["everturn-ingress"]["stringData"].keys() <= list_names(IngressSettings)
    assert secrets["everturn-worker"]["stringData"].keys() <= list_names(WorkerSettings)
    assert secrets["everturn-operator"]["stringData"].keys() <= list_names(MigrationSettings)
    used = {volume["secret"]["secretName"] for _, pod in find_pods() for volume in pod["volumes"] if "secret" in volume}
    assert used == secrets.keys()


def test_ingress_and_worker_get_the_configuration_that_their_setting_names():
    generators = yaml.safe_load((BASE / "kustomization.yaml").read_text())["configMapGenerator"]
    files = {each["name"]: each["files"] for each in generators if "files" in each}
    path = Path(load_env_file(BASE / "settings.env")["EVERTURN_CONFIG"])

    for name in ("everturn-ingress", "everturn-worker"):
        pod = find("Deployment")[name]["spec"]["template"]["spec"]
        (mounted,) = [each for each in pod["containers"][0]["volumeMounts"] if each["mountPath"] == str(path.parent)]
        (volume,) = [each for each in pod["volumes"] if each["name"] == mounted["name"]]
        assert mounted["readOnly"] is True
        assert path.name in files[volume["configMap"]["name"]]
    assert load_config(BASE / path.name) == OperatorConfig()
    assert load_shared_config(BASE / path.name) == SharedConfig()


def test_workers_find_bundles_where_their_setting_says_and_the_guide_fills_the_folder():
    pod = deepcopy(find("Deployment")["everturn-worker"])
    spec = pod["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    folder = {each["name"]: each.get("value") for each in container["env"]}["BUNDLES_DIR"]
    (mounted,) = [each for each in container["volumeMounts"] if each["mountPath"] == folder]
    generator, volume = [
        yaml.safe_load(block)
        for block in re.findall(r"```yaml\n(.*?)```", GUIDE.read_text(), re.DOTALL)
        if "support" in block
    ]

    assert mounted["readOnly"] is True
    (own,) = [each for each in spec["volumes"] if each["name"] == mounted["name"]]
    assert own["emptyDir"]
    own.clear()
    own.update(volume[0])
    for version in VERSIONS:
        validate(pod, version)
    (made,), (source,) = generator["configMapGenerator"], own["projected"]["sources"]
    assert source["configMap"]["name"] == made["name"]
    assert made["options"] == {"disableNameSuffixHash": True}
    assert [each["key"] for each in source["configMap"]["items"]] == [Path(file).name for file in made["files"]]
    assert {Path(each["path"]).parent for each in source["configMap"]["items"]} == {Path("support")}


def test_an_ingress_starts_with_these_settings(monkeypatch: pytest.MonkeyPatch):
    secret = find("Secret")["everturn-ingress"]["stringData"] | {"SIGNING_SECRET": "0123456789abcdef" * 4}
    for name, value in (load_env_file(BASE / "settings.env") | secret).items():
        monkeypatch.setenv(name, value)

    assert IngressSettings().mode == "production"  # type: ignore[call-arg] the environment gives the arguments


def test_no_code_runs_without_a_broker_and_with_one_only_over_tls():
    base, brokered = load_env_file(BASE / "settings.env"), load_env_file(K8S / "broker" / "broker.env")

    assert base["EXECUTION_MODE"] == "off"
    assert brokered["BROKER_URL"].startswith("tls://")
    assert brokered.keys() <= list_names(WorkerSettings)
    assert "docker.sock" not in "".join(file.read_text() for file in K8S.rglob("*.yaml"))


def test_every_pod_selector_matches_a_pod():
    labels = [
        each["spec"]["template"]["metadata"]["labels"] for each in DOCUMENTS if each["kind"] in ("Deployment", "Job")
    ]
    selectors = [find("Service")["everturn-ingress"]["spec"]["selector"]]
    selectors += [each["spec"]["selector"]["matchLabels"] for each in find("PodDisruptionBudget").values()]
    selectors += [each["spec"]["podSelector"].get("matchLabels", {}) for each in find("NetworkPolicy").values()]

    assert len(selectors) == 6
    for selector in selectors:
        assert any(selector.items() <= label.items() for label in labels), selector


def test_every_file_is_part_of_what_is_applied():
    listed = set(yaml.safe_load((BASE / "kustomization.yaml").read_text())["resources"])

    assert {file.name for file in BASE.glob("*.yaml")} == listed | {"kustomization.yaml", "secret.example.yaml"}
