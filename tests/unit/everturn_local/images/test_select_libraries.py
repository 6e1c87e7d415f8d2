"""Which entries of a lock the image of a service gets."""

import importlib.util
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from everturn_local.images.standins import SELECT, SERVICES
from everturn_local.settings import REPOSITORY

SPEC = importlib.util.spec_from_file_location("select_libraries", SELECT)
assert SPEC is not None and SPEC.loader is not None
script: Any = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(script)

OURS = {name: REPOSITORY / folder for name, folder in script.OURS.items()}

SMALL = """\
deep==1.0 \\
    --hash=sha256:aa
    # via
    #   middle
    #   other
middle==2.0 ; sys_platform == 'linux' \\
    --hash=sha256:bb
    # via wanted
other==3.0 \\
    --hash=sha256:cc
    # via tool
several==1.0 ; python_full_version < '3.12' \\
    --hash=sha256:dd
    # via wanted
several==2.0 ; python_full_version >= '3.12' \\
    --hash=sha256:ee
    # via wanted
tool==4.0 \\
    --hash=sha256:ff
wanted==5.0 \\
    --hash=sha256:00
    # via service
"""


def test_a_service_has_what_it_asks_for_and_what_that_needs_with_all_hashes_and_markers():
    lock = script.build_runtime_lock(SMALL, {"wanted"})

    assert [line.split(" \\")[0] for line in lock.splitlines() if "==" in line and not line.startswith(" ")] == [
        "deep==1.0",
        "middle==2.0 ; sys_platform == 'linux'",
        "several==1.0 ; python_full_version < '3.12'",
        "several==2.0 ; python_full_version >= '3.12'",
        "wanted==5.0",
    ]
    assert all(f"sha256:{digest}" in lock for digest in ("aa", "bb", "dd", "ee", "00"))


def test_a_name_missing_from_the_lock_is_an_error():
    with pytest.raises(SystemExit, match="absent"):
        script.build_runtime_lock(SMALL, {"wanted", "absent"})


def test_who_asked_stands_on_one_line_or_on_several():
    assert script.find_dependents("a==1 \\\n    --hash=sha256:aa\n    # via b\n") == {"b"}
    assert script.find_dependents("a==1\n    # via\n    #   b\n    #   c\n") == {"b", "c"}
    assert script.find_dependents("a==1\n") == frozenset()


def test_a_requirement_has_a_name_and_extras():
    assert script.parse_requirement("Everturn[core, postgres]>=1") == ("everturn", ["core", "postgres"])
    assert script.parse_requirement("google_re2>=1.1") == ("google-re2", [])
    with pytest.raises(SystemExit):
        script.parse_requirement(">=1")


def load_lock(service: str) -> str:
    """What the script prints in a Dockerfile."""
    command = [sys.executable, "-I", str(SELECT), service]
    return subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("service", SERVICES)
def test_a_service_image_has_its_libraries_and_no_tools_of_ours(service: str):
    names = {line.split("==")[0] for line in load_lock(service).splitlines() if line[:1].isalnum()}

    assert script.find_wanted(REPOSITORY / service, OURS) <= names
    assert names.isdisjoint({"pytest", "ruff", "pyright", "hypothesis", "moto", "playwright", "uv", "torch"})


def test_every_version_of_a_library_is_there_so_that_the_base_may_have_another_python():
    lock = (REPOSITORY / "requirements.lock").read_text()
    versions = {line.split(" ")[0] for line in lock.splitlines() if line.startswith("numpy==")}

    assert versions <= {line.split(" ")[0] for line in load_lock("services/chat-proc").splitlines()}


def test_what_is_asked_for_through_the_common_package_is_found(tmp_path: Path):
    service, common = tmp_path / "service", tmp_path / "common"
    service.mkdir()
    common.mkdir()
    (service / "pyproject.toml").write_text('[project]\ndependencies = ["everturn[one]", "Own-Thing>=1"]\n')
    (common / "pyproject.toml").write_text(
        '[project]\ndependencies = ["always"]\noptional-dependencies = {one = ["first>=2"], two = ["second"]}\n'
    )

    assert script.find_wanted(service, {"everturn": common}) == {"always", "first", "own-thing"}
