"""Prints the entries of requirements.lock that services need: python3 select_libraries.py services/ingress ...

Runs in the Dockerfiles, in the root of the repository, with the standard library only. The entries are those of the
libraries in each service's pyproject.toml, of the extras of libs/common that it names, and of all that these need.
"""

import re
import sys
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

OURS: Final = {"everturn": Path("libs/common"), "everturn-sdk": Path("libs/sdk")}
"""The packages of ours that services depend on, with extras."""
LOCK: Final = Path("requirements.lock")
_ENTRY: Final = re.compile(r"^([A-Za-z0-9._-]+)==.*(?:\n[ \t].*)*", re.MULTILINE)
_REQUIREMENT: Final = re.compile(r"([A-Za-z0-9._-]+)(?:\[([^\]]*)\])?")


def main(services: Sequence[str]) -> int:
    wanted = frozenset[str]().union(*(find_wanted(Path(service), OURS) for service in services))
    sys.stdout.write(build_runtime_lock(LOCK.read_text(), wanted))
    return 0


def build_runtime_lock(lock: str, wanted: Iterable[str]) -> str:
    """The entries of `wanted` and all their dependencies, each with its hashes. Exits if an entry is missing.

    The lock lists the dependents of each package; they are followed backwards.
    """
    # One name can occur in several versions, each for other Pythons.
    entries: dict[str, str] = {}
    for match in _ENTRY.finditer(lock):
        entries[match[1]] = f"{entries.get(match[1], '')}{match[0]}\n"
    dependents = {name: find_dependents(entry) for name, entry in entries.items()}
    found = set(wanted)
    if missing := sorted(found - entries.keys()):
        sys.exit(f"requirements.lock has no entry for {', '.join(missing)}; run: make lock")
    while more := {name for name, names in dependents.items() if names & found} - found:
        found |= more
    return "".join(entries[name] for name in sorted(found))


def find_dependents(entry: str) -> frozenset[str]:
    """The names after each `# via`, on its line or on the lines below it."""
    comments = " ".join(line.strip() for line in entry.splitlines() if line.lstrip().startswith("#"))
    return frozenset(comments.replace("#", " ").split()) - {"via"}


def find_wanted(service: Path, ours: Mapping[str, Path]) -> frozenset[str]:
    """The direct requirements of a service, from its pyproject.toml and through our own packages with their extras."""
    wanted: set[str] = set()
    for name, extras in map(parse_requirement, _load_project(service)["dependencies"]):
        if name in ours:
            wanted |= _find_extras(_load_project(ours[name]), extras)
        else:
            wanted.add(name)
    return frozenset(wanted)


def parse_requirement(requirement: str) -> tuple[str, Sequence[str]]:
    """The normalized name, and the extras of `name[one,two]>=1`. Exits if it names no package."""
    match = _REQUIREMENT.match(requirement)
    if match is None:
        sys.exit(f"{requirement!r} names no package")
    extras = [extra.strip() for extra in (match[2] or "").split(",") if extra.strip()]
    return re.sub(r"[-_.]+", "-", match[1]).lower(), extras


def _find_extras(project: Mapping[str, Any], extras: Sequence[str]) -> set[str]:
    asked = [*project["dependencies"], *(word for extra in extras for word in project["optional-dependencies"][extra])]
    return {parse_requirement(word)[0] for word in asked}


def _load_project(folder: Path) -> Mapping[str, Any]:
    project: Mapping[str, Any] = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    return project


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
