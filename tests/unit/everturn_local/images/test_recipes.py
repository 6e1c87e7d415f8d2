"""What goes into the two images."""

import sys

import pytest

from everturn_local.images.modules import find_imports
from everturn_local.images.recipes import EXECUTOR, RECIPES, SUPERVISOR, Recipe, load_inputs, load_sources


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.package)
def test_our_files_in_an_image_need_the_standard_library_only(recipe: Recipe):
    files = {name: path for name, path in load_sources(recipe).items() if name.startswith("python/")}
    allowed = sys.stdlib_module_names | {"everturn", recipe.package}

    foreign = {(name, used) for name, path in files.items() for used in find_imports(path.read_text())}

    assert len(files) > 5
    assert {pair for pair in foreign if pair[1].split(".")[0] not in allowed} == set()


def test_neither_image_holds_what_talks_to_an_engine():
    names = [*load_sources(SUPERVISOR), *load_sources(EXECUTOR)]

    assert not [name for name in names if "/broker/" in name or "/bubblewrap/" in name]


def test_the_lock_of_the_libraries_decides_about_the_executor_only():
    assert "requirements.lock" in load_inputs(EXECUTOR)
    assert "requirements.lock" not in load_inputs(SUPERVISOR)
    assert "python/executor/__main__.py" in load_inputs(EXECUTOR)
