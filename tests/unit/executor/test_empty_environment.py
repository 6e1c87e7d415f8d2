"""The executor in an environment that has nothing but itself and bare everturn, as it runs in the sandbox."""

import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

CHECK = """
import importlib, pkgutil, sys
import executor
for module in pkgutil.iter_modules(executor.__path__):
    if module.name != "__main__":
        importlib.import_module(f"executor.{module.name}")
ours = {name for name in sys.modules if name.partition(".")[0] == "everturn"}
formats = {f"everturn.execution.{name}" for name in ("framing", "messages", "privileges", "records")}
assert ours == {"everturn", "everturn.execution"} | formats, ours
foreign = {name.partition(".")[0] for name in sys.modules} - sys.stdlib_module_names - {"everturn", "executor"}
print(sorted(name for name in foreign if not name.startswith(("_", "sitecustomize"))))
"""


@pytest.fixture(scope="module")
def empty_environment(tmp_path_factory, repository_folder) -> Path:
    place = tmp_path_factory.mktemp("empty")
    venv.create(place / "venv", with_pip=False)
    [packages] = (place / "venv" / "lib").glob("python*/site-packages")
    for member in ("libs/common", "services/executor"):
        command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(place)]
        subprocess.run(command, cwd=repository_folder / member, check=True, capture_output=True, timeout=50)
    for wheel in place.glob("*.whl"):
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(packages)
    return place / "venv" / "bin" / "python"


@pytest.fixture(scope="module")
def repository_folder() -> Path:
    return Path(__file__).parents[3]


def test_the_executor_needs_only_the_standard_library(empty_environment):
    done = subprocess.run(
        [empty_environment, "-I", "-c", CHECK], check=False, capture_output=True, text=True, timeout=50
    )

    assert (done.stdout, done.stderr) == ("[]\n", "")
