"""Each package declares the libraries that it imports: an image has nothing else."""

import ast
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any

import pytest
from architecture_rules.sources import ROOT, SOURCE_FOLDERS, Module, Violation, load_modules, render
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

COMMON = "libs/common"
COMPANIONS = {
    "botocore": "boto3",
    "cryptography": "pyjwt",
    "pydantic-core": "pydantic",
    "referencing": "jsonschema",
    "starlette": "fastapi",
    "urllib3": "boto3",
}
"""Libraries whose types are part of the interface of another one, which installs them."""
OURS = frozenset(folder.name for pattern in SOURCE_FOLDERS for folder in ROOT.glob(pattern))


@pytest.mark.parametrize("package", sorted({module.path.partition("/src/")[0] for module in load_modules()}))
def test_a_package_declares_the_libraries_that_it_imports(package: str):
    declared, distributions = find_declared(load_project(package), load_project(COMMON)), packages_distributions()
    modules = [module for module in load_modules() if module.path.startswith(f"{package}/src/")]

    violations = [found for module in modules for found in check_declared(module, declared, distributions)]

    assert not violations, render(violations)


def check_declared(
    module: Module, declared: frozenset[str], distributions: Mapping[str, Sequence[str]]
) -> Iterator[Violation]:
    """`distributions` has the names of the distributions with a top-level module, as importlib.metadata lists them."""
    for node in module.nodes:
        for top in find_top_names(node) - sys.stdlib_module_names - OURS:
            names = {canonicalize_name(name) for name in distributions.get(top, [top])}
            if not declared & {*names, *(COMPANIONS[name] for name in names if name in COMPANIONS)}:
                yield Violation(module.path, getattr(node, "lineno", 1), f"imports {top}, which is not declared")


def find_top_names(node: ast.AST) -> set[str]:
    match node:
        case ast.Import(names=names):
            return {alias.name.partition(".")[0] for alias in names}
        case ast.ImportFrom(module=str(name)):
            return {name.partition(".")[0]}
        case _:
            return set()


def find_declared(project: Mapping[str, Any], common: Mapping[str, Any]) -> frozenset[str]:
    """The libraries that a project asks for, itself, for a part of it, or through extras of the common package."""
    extras: Mapping[str, Sequence[str]] = common["optional-dependencies"]
    parts: Mapping[str, Sequence[str]] = project.get("optional-dependencies", {})
    asked = [
        Requirement(text) for text in (*project["dependencies"], *(text for part in parts.values() for text in part))
    ]
    shared = {extra for each in asked if each.name == common["name"] for extra in each.extras}
    asked += [Requirement(text) for extra in shared for text in extras[extra]]
    return frozenset(canonicalize_name(each.name) for each in asked)


def load_project(package: str | Path) -> Mapping[str, Any]:
    project: Mapping[str, Any] = tomllib.loads((ROOT / package / "pyproject.toml").read_text())["project"]
    return project


def test_libraries_of_the_extras_that_a_package_asks_for_are_declared():
    common = {"name": "ours", "dependencies": [], "optional-dependencies": {"one": ["One>=1"], "two": ["two"]}}
    service = {"name": "service", "dependencies": ["ours[one]", "Py_Jwt[crypto]>=2"]}

    assert find_declared(service, common) == {"ours", "one", "py-jwt"}
    assert find_declared(common, common) == {"one", "two"}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("import json\nimport ingress.app", 0),
        ("def f():\n  from jwt.api import a", 0),
        ("from cryptography import x509", 0),
        ("import httptools", 1),
        ("import magic.compat", 1),
    ],
)
def test_an_import_of_what_is_not_declared_is_found(text: str, found: int):
    distributions = {"jwt": ["PyJWT"], "cryptography": ["cryptography"], "magic": ["python-magic"]}
    module = Module("services/x/src/x/m.py", text)

    assert len(list(check_declared(module, frozenset({"pyjwt", "orjson"}), distributions))) == found
