"""The Helm chart in deploy/helm, written from what deploy/k8s builds.

Documents get marks in places where the chart has a value or a condition; the dumped text then gets Helm's expressions
in the place of the marks.
"""

import hashlib
import json
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any, Final

import kustomize
import yaml
from kustomize import Document, name_of

HEADER: Final = "# Written from deploy/k8s by UPDATE_GOLDEN=1 make test TESTS=tests/unit/deploy_k8s\n"
OPTIONAL: Final = ("clamd", "keda", "monitoring")
"""Components that add documents; `keda` also changes two of the base. Those with brokers are handled by themselves."""
NAMESPACE: Final = "everturn"
"""In the manifests. Helm installs into the namespace of the release."""
INGRESS, WORKER = ("Deployment", "everturn-ingress"), ("Deployment", "everturn-worker")
OPERATOR: Final = ("Deployment", "everturn-operator")
MIGRATE, SCALER = ("Job", "everturn-migrate"), ("HorizontalPodAutoscaler", "everturn-ingress")
SERVICES: Final = {INGRESS: "ingress", WORKER: "worker", OPERATOR: "operator", MIGRATE: "operator"}
"""With the keys of their service accounts in the values."""
SETTINGS: Final = ("ConfigMap", "everturn-settings")
CONFIG: Final = ("ConfigMap", "everturn-config")
CLAMD: Final = ("StatefulSet", "everturn-clamd")
PODS: Final = "pods"
"""The value with fields of all pods."""
HOOK: Final = {"helm.sh/hook": "pre-install,pre-upgrade", "helm.sh/hook-delete-policy": "before-hook-creation"}
CLAMD_URL: Final = "CLAMD_URL"
TEXTS: Final = """\
data:
  {{- range $name, $value := .Values.VALUE }}
  {{- if not (kindIs "string" $value) }}
  {{- fail (printf "VALUE.%s must be a string: quote its value." $name) }}
  {{- end }}
  {{ $name }}: {{ $value | quote }}
  {{- end }}"""
"""Data of a ConfigMap, from a value with one text for each key."""
CLAMD_LINES: Final = """
  {{- if .Values.clamd.enabled }}
  CLAMD_URL: ADDRESS
  {{- end }}"""
CHECKED: Final = " ".join(f".Values.{name}" for name in ("settings", "config", "clamd", "broker", "brokerInCluster"))
CHECKSUM: Final = f"{{{{ list {CHECKED} | toJson | sha256sum }}}}"
BROKER: Final = ("Deployment", "everturn-broker")
ONE_BROKER: Final = """\
{{- if .Values.broker.enabled }}
{{- fail "broker and brokerInCluster can't both be enabled." }}
{{- end }}
"""
VALUE_COMMENTS: Final[Mapping[str, str]] = {
    "image": "Your own images, with a version.",
    "settings": "docs/configuration.md lists all of them. No secrets: see docs/how-to/run-on-kubernetes.md.",
    "config": "The text of everturn.toml: docs/how-to/configure.md.",
    "worker": "`bundles` is the source of the volume in which workers look for bundles.",
    "clamd": "If it is not enabled, set CLAMD_URL in `settings`.",
    "keda": "Needs KEDA, and replaces `worker.replicas`, `ingress.minReplicas` and `ingress.maxReplicas`.",
    "monitoring": "Needs the Prometheus operator.",
    "broker": "A broker on another machine. Needs the Secret everturn-broker-client.",
    "brokerInCluster": "A broker of pods. Needs the Secrets everturn-broker-client and everturn-broker-server.",
    "serviceAccounts": "Existing ones, for example with a role of AWS. The migrations run with that of the operator.",
    PODS: "Fields of all pods: imagePullSecrets, nodeSelector, tolerations, affinity, priorityClassName.",
}


def build_chart(k8s: Path) -> dict[str, str]:
    """The files of the chart, by their paths in it."""
    base = {name_of(each): each for each in kustomize.build(k8s / "base")}
    full = {name_of(each): each for each in kustomize.build(k8s / "overlays" / "production")}
    brokered = {name_of(each): each for each in _build_with(k8s, "broker")}
    pods = {name_of(each): each for each in _build_with(k8s, "broker-in-cluster")}
    added = {
        component: [each for each in _build_with(k8s, component) if name_of(each) not in base] for component in OPTIONAL
    }
    values = _build_values(base, full, brokered, pods, added)
    documents = deepcopy(base)
    del documents["Namespace", "everturn"]
    _mark_deployments(documents, brokered, pods)
    settings, config = documents.pop(SETTINGS), documents.pop(CONFIG)
    for name in settings, config:
        name.pop("data")
    settings["data"], config["data"] = "@@texts settings", {"everturn.toml": "@@value config"}
    clamd = next(each for each in added["clamd"] if name_of(each) == CLAMD)
    conf = next(each["data"] for each in added["clamd"] if name_of(each) == ("ConfigMap", "everturn-clamd"))
    # Its mount is a subPath, which a running pod never sees change.
    clamd["spec"]["template"]["metadata"]["annotations"] = {"checksum/settings": _digest(conf)}
    for each in (*documents.values(), clamd):
        if "template" in each.get("spec", {}):
            each["spec"]["template"]["spec"] = {"pods": "@@extra pods"} | each["spec"]["template"]["spec"]
    for name, key in SERVICES.items():
        documents[name]["spec"]["template"]["spec"]["serviceAccountName"] = f"@@value serviceAccounts.{key}"
    scaler, job = documents.pop(SCALER), documents.pop(MIGRATE)
    scaler["spec"] |= {"minReplicas": "@@plain ingress.minReplicas", "maxReplicas": "@@plain ingress.maxReplicas"}
    migrate = _get_container(job)
    migrate["image"] = _get_container(documents[OPERATOR])["image"] = "@@value image.ingress"
    migrate["envFrom"][0]["configMapRef"]["name"] = "everturn-migrate-settings"
    job["metadata"]["annotations"] = dict(HOOK)
    early = deepcopy(settings)
    early["metadata"] |= {"name": "everturn-migrate-settings", "annotations": HOOK | {"helm.sh/hook-weight": "-1"}}
    url = full[SETTINGS]["data"][CLAMD_URL]
    templates = {
        "settings": _render([settings, config], url),
        "migrate": _render([early, job], url),
        "services": _render(documents.values(), url),
        "autoscaler": _render_if("not .Values.keda.enabled", [scaler], url),
        "broker": _render_if(".Values.broker.enabled", _mark_broker(base, brokered), url),
        "broker-in-cluster": _render_if(
            ".Values.brokerInCluster.enabled", _mark_broker_in_cluster(base, pods), url, before=ONE_BROKER
        ),
        **{name: _render_if(f".Values.{name}.enabled", _mark_added(each), url) for name, each in added.items()},
    }
    version = tomllib.loads((k8s.parents[1] / "pyproject.toml").read_text())["project"]["version"]
    chart = {"apiVersion": "v2", "name": "everturn", "description": "Everturn on Kubernetes", "version": version}
    return {
        "Chart.yaml": HEADER + _dump(chart),
        "values.yaml": HEADER + _dump_values(values),
        **{f"templates/{name}.yaml": HEADER + text for name, text in templates.items()},
    }


def _build_with(k8s: Path, component: str) -> list[Document]:
    documents = kustomize.build(k8s / "base")
    kustomize.add(k8s / "components" / component, documents)
    return documents


def _digest(data: Mapping[str, str]) -> str:
    return hashlib.sha256("".join(data.values()).encode()).hexdigest()


def _get_container(document: Document) -> Document:
    [container] = document["spec"]["template"]["spec"]["containers"]
    return container


def _build_values(
    base: Mapping[tuple[str, str], Document],
    full: Mapping[tuple[str, str], Document],
    brokered: Mapping[tuple[str, str], Document],
    pods: Mapping[tuple[str, str], Document],
    added: Mapping[str, list[Document]],
) -> Document:
    scaler = base[SCALER]["spec"]
    triggers = [trigger for each in added["keda"] for trigger in each["spec"]["triggers"]]
    addresses = {trigger["metadata"].get("serverAddress") for trigger in triggers} - {None}
    [bundles] = [each for each in base[WORKER]["spec"]["template"]["spec"]["volumes"] if each["name"] == "bundles"]
    return {
        "image": {"ingress": _get_container(full[INGRESS])["image"], "worker": _get_container(full[WORKER])["image"]},
        "settings": {name: value for name, value in full[SETTINGS]["data"].items() if name != CLAMD_URL},
        "config": "",
        "ingress": {
            "minReplicas": scaler["minReplicas"],
            "maxReplicas": scaler["maxReplicas"],
            "resources": _get_container(base[INGRESS])["resources"],
        },
        "worker": {
            "replicas": base[WORKER]["spec"]["replicas"],
            "resources": _get_container(base[WORKER])["resources"],
            "bundles": {key: value for key, value in bundles.items() if key != "name"},
        },
        "clamd": {"enabled": True},
        "keda": {"enabled": False, "prometheus": addresses.pop()},
        "monitoring": {"enabled": False},
        "broker": {"enabled": False, "settings": brokered["ConfigMap", "everturn-broker"]["data"]},
        "brokerInCluster": {
            "enabled": False,
            "image": re.sub("ingress(?=:)", "broker", _get_container(full[INGRESS])["image"]),
            "settings": pods["ConfigMap", "everturn-broker-settings"]["data"],
            "maxPods": int(pods["ResourceQuota", "everturn-runs"]["spec"]["hard"]["pods"]),
            "profiles": json.loads(pods["ConfigMap", "everturn-profiles"]["data"]["profiles.json"]),
        },
        "serviceAccounts": dict.fromkeys(SERVICES.values(), "default"),
        PODS: {},
    }


def _mark_deployments(
    documents: Mapping[tuple[str, str], Document],
    brokered: Mapping[tuple[str, str], Document],
    pods: Mapping[tuple[str, str], Document],
) -> None:
    for name, key in ((INGRESS, "ingress"), (WORKER, "worker")):
        template = documents[name]["spec"]["template"]
        template["metadata"]["annotations"] = {"checksum/settings": "@@checksum"}
        _get_container(documents[name]).update(image=f"@@value image.{key}", resources=f"@@yaml {key}.resources")
    worker, other, own = documents[WORKER], brokered[WORKER], pods[WORKER]
    for field in ("envFrom", "volumeMounts"):
        _mark_items(_get_container(worker)[field], *(_get_container(each)[field] for each in (other, own)))
    volumes = worker["spec"]["template"]["spec"]["volumes"]
    _mark_items(volumes, *(each["spec"]["template"]["spec"]["volumes"] for each in (other, own)))
    [bundles] = [each for each in volumes if isinstance(each, dict) and each["name"] == "bundles"]
    bundles.clear()
    bundles |= {"name": "bundles", "source": "@@inline worker.bundles"}
    worker["spec"]["replicas"] = "@@plain unless keda.enabled worker.replicas"


def _mark_items(items: list[Any], outside: Sequence[Any], inside: Sequence[Any]) -> None:
    """Add what only those with a broker have, where they have it: one outside of the cluster, or inside."""
    both = [each for each in outside if each not in items]
    rest = [each for each in inside if each not in items and each not in both]
    marked = ["@@either broker.enabled brokerInCluster.enabled", *both, "@@end"]
    marked += ["@@if brokerInCluster.enabled", *rest, "@@end"] if rest else []
    place = outside.index(both[0])
    items[place:place] = marked


def _mark_broker(
    base: Mapping[tuple[str, str], Document], brokered: Mapping[tuple[str, str], Document]
) -> list[Document]:
    documents = [deepcopy(each) for name, each in brokered.items() if name not in base]
    [settings] = [each for each in documents if each["kind"] == "ConfigMap"]
    settings["data"] = "@@texts broker.settings"
    return documents


def _mark_broker_in_cluster(
    base: Mapping[tuple[str, str], Document], pods: Mapping[tuple[str, str], Document]
) -> list[Document]:
    documents = {name: deepcopy(each) for name, each in pods.items() if name not in base}
    documents["ConfigMap", "everturn-broker-settings"]["data"] = "@@texts brokerInCluster.settings"
    documents["ResourceQuota", "everturn-runs"]["spec"]["hard"]["pods"] = "@@value brokerInCluster.maxPods"
    documents["ConfigMap", "everturn-profiles"]["data"]["profiles.json"] = "@@json brokerInCluster.profiles"
    template = documents[BROKER]["spec"]["template"]
    template["metadata"]["annotations"] = {"checksum/settings": "@@checksum"}
    template["spec"] = {"pods": "@@extra pods"} | template["spec"]
    _get_container(documents[BROKER])["image"] = "@@value brokerInCluster.image"
    return list(documents.values())


def _mark_added(documents: Iterable[Document]) -> list[Document]:
    marked = deepcopy(list(documents))
    for trigger in (trigger for each in marked for trigger in each.get("spec", {}).get("triggers", [])):
        if "serverAddress" in trigger["metadata"]:
            trigger["metadata"]["serverAddress"] = "@@value keda.prometheus"
    return marked


def _dump(document: Document) -> str:
    return yaml.safe_dump(document, sort_keys=False, width=1_000_000)


def _dump_values(values: Document) -> str:
    """Each key with the comment above it."""
    parts = (
        ("# " + VALUE_COMMENTS[key] + "\n" if key in VALUE_COMMENTS else "") + _dump({key: values[key]})
        for key in values
    )
    return "\n".join(parts)


def _render_if(condition: str, documents: Iterable[Document], url: str, *, before: str = "") -> str:
    return f"{{{{- if {condition} }}}}\n{before}{_render(documents, url)}{{{{- end }}}}\n"


def _render(documents: Iterable[Document], url: str) -> str:
    texts: list[str] = []
    for each in deepcopy(list(documents)):
        if each["metadata"].get("namespace") == NAMESPACE:
            del each["metadata"]["namespace"]
        texts.append(_fill_in(_dump(each), url))
    return "---\n".join(texts)


def _fill_in(text: str, url: str) -> str:
    """Helm's expressions in the place of the marks; what looks like one in the text itself stays as it is."""
    text = text.replace("{{", "{{ `{{` }}")
    text = text.replace('namespace="everturn"', 'namespace="{{ .Release.Namespace }}"')
    release = "{{ .Release.Namespace }}"
    text = re.sub(rf"(\bnamespace|kubernetes.io/metadata.name): {NAMESPACE}$", rf"\1: {release}", text, flags=re.M)
    text = text.replace(
        "data: '@@texts settings'", TEXTS.replace("VALUE", "settings") + CLAMD_LINES.replace("ADDRESS", url)
    )
    text = re.sub(r"^data: '@@texts ([\w.]+)'$", lambda found: TEXTS.replace("VALUE", found[1]), text, flags=re.M)
    text = re.sub(r"'@@checksum'", CHECKSUM, text)
    text = re.sub(r"^ *- '@@if ([\w.]+)'$", r"{{- if .Values.\1 }}", text, flags=re.M)
    text = re.sub(r"^ *- '?@@either ([\w.]+) ([\w.]+)'?$", r"{{- if or .Values.\1 .Values.\2 }}", text, flags=re.M)
    text = re.sub(r"'@@json ([\w.]+)'", r"{{ .Values.\1 | toPrettyJson | quote }}", text)
    text = re.sub(r"^ *- '@@end'$", "{{- end }}", text, flags=re.M)
    text = re.sub(
        r"^( *\w+: )'@@plain unless ([\w.]+) ([\w.]+)'$",
        r"{{- if not .Values.\2 }}\n\1{{ .Values.\3 }}\n{{- end }}",
        text,
        flags=re.M,
    )
    text = re.sub(r"'@@plain ([\w.]+)'", r"{{ .Values.\1 }}", text)
    text = re.sub(r"'@@value ([\w.]+)'", r"{{ .Values.\1 | quote }}", text)
    text = re.sub(
        r"^( *)((?:- )?[\w]+): '@@yaml ([\w.]+)'$",
        lambda found: (
            f"{found[1]}{found[2]}:\n{found[1]}  {{{{- toYaml .Values.{found[3]} | nindent {len(found[1]) + 2} }}}}"
        ),
        text,
        flags=re.M,
    )
    text = re.sub(
        r"^( *)source: '@@inline ([\w.]+)'$",
        lambda found: f"{found[1]}{{{{- toYaml .Values.{found[2]} | nindent {len(found[1])} }}}}",
        text,
        flags=re.M,
    )
    text = re.sub(
        r"^( *)pods: '@@extra ([\w.]+)'$",
        lambda found: (
            f"{found[1]}{{{{- with .Values.{found[2]} }}}}\n"
            f"{found[1]}{{{{- toYaml . | nindent {len(found[1])} }}}}\n"
            f"{found[1]}{{{{- end }}}}"
        ),
        text,
        flags=re.M,
    )
    if "@@" in text:
        raise ValueError(f"A mark is left in:\n{text}")
    return text
