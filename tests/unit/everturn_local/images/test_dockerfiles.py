"""What the Dockerfiles put into the images."""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from everturn_local.compose.program import FILE
from everturn_local.images.bases import DEFAULT_BASE
from everturn_local.images.contents import DOCKERFILES, RUN_IMAGES, find_copied, load_inputs
from everturn_local.settings import REPOSITORY
from exec_supervisor.bootstrap import MODES

NAMES = sorted(path.name for path in DOCKERFILES.glob("*.Dockerfile"))
SELECTIVE = ("broker.Dockerfile", "exec-supervisor.Dockerfile", "executor.Dockerfile")
"""They copy only the modules that their service imports."""
COMMON = "libs/common/src/everturn/"
MODE_OF = {"broker.Dockerfile": "broker", "exec-supervisor.Dockerfile": "pair", "executor.Dockerfile": "combined"}
"""The mode of the supervisor that an image runs; it leaves out the folders of the other modes."""


def find_other_modes(name: str) -> set[str]:
    return MODES.keys() - {MODE_OF.get(name)}


def find_imports(file: Path) -> Iterator[str]:
    """Every name that a module can import: for `from a import b` that is `a` and, if b is a module, `a.b`."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (node.module, *(f"{node.module}.{alias.name}" for alias in node.names))


def find_modules(folder: str, name: str) -> Iterator[str]:
    """The files under a package's folder that importing `name` runs."""
    parts = name.split(".")[1:]
    for depth in range(len(parts) + 1):
        place = folder + "/".join(parts[:depth])
        for path in (f"{place.removesuffix('/')}/__init__.py", f"{place}.py"):
            if (REPOSITORY / path).is_file():
                yield path


@pytest.mark.parametrize("name", NAMES)
def test_every_file_that_is_copied_exists_and_is_in_the_context(name: str):
    sources = find_copied((DOCKERFILES / name).read_text())
    ignored = (REPOSITORY / ".dockerignore").read_text().splitlines()
    sent = tuple(line.removeprefix("!") for line in ignored if line.startswith("!"))

    assert [source for source in sources if not list(REPOSITORY.glob(source))] == []
    assert [source for source in sources if not source.startswith(sent)] == []
    assert ignored[1] == "*"


@pytest.mark.parametrize("name", SELECTIVE)
def test_an_image_of_few_modules_has_what_they_import_and_nothing_else(name: str):
    copied = {path for path in load_inputs(DOCKERFILES / name) if path.endswith(".py") and "/src/" in path}
    needed: set[str] = set()
    for path in copied:
        for imported in find_imports(REPOSITORY / path):
            top, _, rest = imported.partition(".")
            if top == "everturn":
                needed |= set(find_modules(COMMON, imported))
            elif top in ("exec_supervisor", "executor") and rest.split(".")[0] not in find_other_modes(name):
                needed |= set(find_modules(f"services/{top.replace('_', '-')}/src/{top}/", imported))

    assert needed - copied == set()
    assert {path for path in copied - needed if path.startswith(COMMON)} == set()


@pytest.mark.parametrize("name", RUN_IMAGES.values())
def test_our_files_in_an_image_of_a_run_need_the_standard_library_only(name: str):
    files = [path for path in load_inputs(DOCKERFILES / name) if path.endswith(".py")]
    allowed = sys.stdlib_module_names | {"everturn", "exec_supervisor", "executor"}

    foreign = {used for path in files for used in find_imports(REPOSITORY / path)}

    assert len(files) > 5
    assert {used for used in foreign if used.split(".")[0] not in allowed} == set()
    assert not [path for path in files if find_other_modes(name) & set(Path(path).with_suffix("").parts)]


def test_the_image_of_tasks_adds_to_the_executors_what_their_mode_imports():
    inside = load_inputs(DOCKERFILES / "executor.Dockerfile").keys()
    added = load_inputs(DOCKERFILES.parent / "ecs" / "run.Dockerfile").keys()
    files = [path for path in added if path.startswith(("services/", "libs/"))]

    used = {name for path in files for name in find_imports(REPOSITORY / path)}
    ours = {name for name in used if name.partition(".")[0] in ("everturn", "exec_supervisor")}

    assert {name.partition(".")[0] for name in used - ours} <= {*sys.stdlib_module_names, "botocore", "urllib3"}
    needed = {path for name in ours for path in find_modules(find_source(name), name)}
    assert needed <= {*inside, *added}
    assert "services/exec-supervisor/src/exec_supervisor/task/run.py" in added


def find_source(name: str) -> str:
    return COMMON if name.startswith("everturn.") else "services/exec-supervisor/src/exec_supervisor/"


def test_the_digest_of_an_image_covers_its_dockerfile_its_lock_and_our_modules():
    inputs = load_inputs(DOCKERFILES / "executor.Dockerfile")

    assert {"deploy/docker/executor.Dockerfile", "services/executor/requirements.lock"} <= inputs.keys()
    assert "services/executor/src/executor/__main__.py" in inputs
    assert not [path for path in inputs if "__pycache__" in path]


def test_copies_of_several_lines_are_read_and_those_of_other_stages_are_not():
    text = "FROM a\nCOPY a b \\\n  c d/\nCOPY --from=x /e /f\nRUN true\nCOPY g ./\n"

    assert find_copied(text) == ["a", "b", "c", "g"]


@pytest.mark.parametrize("name", NAMES)
def test_an_image_has_a_user_of_its_own_and_names_no_index(name: str):
    text = (DOCKERFILES / name).read_text()
    final = text.rpartition("\nFROM ")[2]

    assert [line for line in final.splitlines() if line.startswith("USER ") and line.split()[1][0] != "0"]
    assert not re.search(r"\b(apt-get|pip|npm|curl|wget)\b", final)
    assert "://" not in text
    assert f"ARG PYTHON_IMAGE={DEFAULT_BASE}\n" in text


def test_the_compose_file_builds_every_dockerfile_once_and_with_the_same_base():
    services = yaml.safe_load(FILE.read_text())["services"]
    builds = [service["build"] for service in services.values() if "build" in service]

    assert sorted(Path(build["dockerfile"]).name for build in builds) == NAMES
    assert services["ingress"]["image"] == services["migrate"]["image"]
    assert {build["context"] for build in builds} == {".."}
    assert {build["args"]["PYTHON_IMAGE"] for build in builds} == {f"${{PYTHON_IMAGE:-{DEFAULT_BASE}}}"}
