"""What `kubectl kustomize` builds from a folder, without the hashes behind names of ConfigMaps.

Only for the fields that deploy/k8s uses: any other is an error. Where kubectl is installed, a test compares both.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

Document = dict[str, Any]

KNOWN_FIELDS = frozenset(
    {"apiVersion", "kind", "namespace", "resources", "components", "configMapGenerator", "labels", "patches", "images"}
)
MERGE_KEYS = {"containers": "name", "volumes": "name", "env": "name", "volumeMounts": "mountPath"}
"""Lists that a patch adds to, at their beginning, by what names an entry; it replaces every other list."""
DELETE = {"$patch": "delete"}


def build(folder: Path, *, components: Sequence[Path] = ()) -> list[Document]:
    """The documents of a folder with a kustomization, with more components than its file names."""
    built: list[Document] = []
    add(folder.resolve(), built, components)
    return built


def load(*files: Path) -> list[Document]:
    return [document for file in files for document in yaml.safe_load_all(file.read_text())]


def load_env_file(file: Path) -> dict[str, str]:
    return dict(line.split("=", 1) for line in file.read_text().splitlines() if line and not line.startswith("#"))


def name_of(document: Document) -> tuple[str, str]:
    return document["kind"], document["metadata"]["name"]


def merge(base: Any, change: Any, field: str = "") -> Any:
    """A strategic merge patch: null removes a field."""
    if isinstance(base, dict) and isinstance(change, dict):
        merged = base | {key: merge(base[key], value, key) if key in base else value for key, value in change.items()}
        return {key: value for key, value in merged.items() if value is not None}
    if isinstance(change, list) and (key := MERGE_KEYS.get(field)):
        changes = {each[key]: each for each in change}
        known = [each[key] for each in base]
        added = [each for each in change if each[key] not in known]
        return [*added, *(merge(each, changes.get(each[key], {})) for each in base)]
    return change


def add(folder: Path, built: list[Document], components: Sequence[Path] = ()) -> None:
    """Add what a folder has, in the order of kustomize: resources, components, generators, and then what changes all of
    them."""
    [file] = load(folder / "kustomization.yaml")
    if unknown := file.keys() - KNOWN_FIELDS:
        raise ValueError(f"{folder} uses {unknown}, which this module does not build.")
    own: list[Document] = []
    for target in (folder / name for name in file.get("resources", [])):
        own += build(target) if target.is_dir() else load(target)
    # A component changes what its parent has built; a kustomization changes only its own.
    documents = built if file["kind"] == "Component" else own
    if documents is built:
        built += own
    for component in (*(folder / name for name in file.get("components", [])), *components):
        add(component.resolve(), documents)
    for generator in file.get("configMapGenerator", []):
        _generate(folder, generator, documents)
    for change in (change for patch in file.get("patches", []) for change in load(folder / patch["path"])):
        [place] = [place for place, each in enumerate(documents) if name_of(each) == name_of(change)]
        if change.items() >= DELETE.items():
            del documents[place]
        else:
            documents[place] = merge(documents[place], change)
    for document in documents:
        metadata = document["metadata"]
        for labels in (each["pairs"] for each in file.get("labels", [])):
            metadata["labels"] = metadata.get("labels", {}) | labels
        if "namespace" in file and document["kind"] != "Namespace":
            metadata["namespace"] = file["namespace"]
        for image in file.get("images", []):
            _set_image(document, image)
    if documents is own:
        built += own


def _generate(folder: Path, generator: Document, documents: list[Document]) -> None:
    data = {name: (folder / name).read_text() for name in generator.get("files", [])}
    for name in generator.get("envs", []):
        data |= load_env_file(folder / name)
    data |= dict(literal.split("=", 1) for literal in generator.get("literals", []))
    name, behavior = ("ConfigMap", generator["name"]), generator.get("behavior", "create")
    found = [each for each in documents if name_of(each) == name]
    if behavior == "create":
        if found:
            raise ValueError(f"{name} exists.")
        metadata: Document = {"name": generator["name"]}
        metadata |= {"namespace": generator["namespace"]} if "namespace" in generator else {}
        metadata |= {"labels": labels} if (labels := generator.get("options", {}).get("labels")) else {}
        documents.append({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data})
    else:
        [existing] = found
        existing["data"] = existing["data"] | data if behavior == "merge" else data


def _set_image(document: Document, image: Document) -> None:
    pod = document.get("spec", {}).get("template", {}).get("spec", {})
    for container in (*pod.get("containers", []), *pod.get("initContainers", [])):
        if container["image"] == image["name"]:
            container["image"] = f"{image['newName']}:{image['newTag']}"
