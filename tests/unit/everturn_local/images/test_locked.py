"""Which entries of a lock a service needs."""

from pathlib import Path

import pytest

from everturn_local.images.engine import ImageError
from everturn_local.images.locked import build_runtime_lock, find_dependents, find_wanted, parse_requirement
from everturn_local.images.recipes import BROKER, INGRESS, LIBRARY, LOCK, WORKER, Recipe, load_lock

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


def test_a_service_gets_its_requirements_and_their_dependencies():
    lock = build_runtime_lock(SMALL, {"wanted"})

    assert [line.split(" \\")[0] for line in lock.splitlines() if "==" in line and not line.startswith(" ")] == [
        "deep==1.0",
        "middle==2.0 ; sys_platform == 'linux'",
        "several==1.0 ; python_full_version < '3.12'",
        "several==2.0 ; python_full_version >= '3.12'",
        "wanted==5.0",
    ]
    assert all(f"sha256:{digest}" in lock for digest in ("aa", "bb", "dd", "ee", "00"))


def test_a_name_missing_in_the_lock_is_reported():
    with pytest.raises(ImageError, match="absent"):
        build_runtime_lock(SMALL, {"wanted", "absent"})


def test_dependents_are_on_one_line_or_several():
    assert find_dependents("a==1 \\\n    --hash=sha256:aa\n    # via b\n") == {"b"}
    assert find_dependents("a==1\n    # via\n    #   b\n    #   c\n") == {"b", "c"}
    assert find_dependents("a==1\n") == frozenset()


def test_a_requirement_has_a_name_and_extras():
    assert parse_requirement("Everturn[core, postgres]>=1") == ("everturn", ["core", "postgres"])
    assert parse_requirement("google_re2>=1.1") == ("google-re2", [])
    with pytest.raises(ImageError):
        parse_requirement(">=1")


@pytest.mark.parametrize("recipe", [BROKER, INGRESS, WORKER], ids=lambda recipe: recipe.repository)
def test_a_service_image_has_its_libraries_and_no_tools_of_ours(recipe: Recipe):
    names = {line.split("==")[0] for line in load_lock(recipe).splitlines() if line[:1].isalnum()}

    assert find_wanted(recipe.service / "pyproject.toml", LIBRARY / "pyproject.toml") <= names
    assert names.isdisjoint({"pytest", "ruff", "pyright", "hypothesis", "moto", "playwright", "uv", "torch"})


def test_the_lock_has_library_versions_for_other_pythons():
    versions = {line.split(" ")[0] for line in LOCK.read_text().splitlines() if line.startswith("numpy==")}

    assert versions <= {line.split(" ")[0] for line in load_lock(WORKER).splitlines()}


def test_requirements_of_the_common_package_are_found(tmp_path: Path):
    (tmp_path / "service.toml").write_text('[project]\ndependencies = ["everturn[one]", "Own-Thing>=1"]\n')
    (tmp_path / "common.toml").write_text(
        '[project]\ndependencies = ["always"]\noptional-dependencies = {one = ["first>=2"], two = ["second"]}\n'
    )

    assert find_wanted(tmp_path / "service.toml", tmp_path / "common.toml") == {"always", "first", "own-thing"}
