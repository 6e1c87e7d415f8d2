"""The contents of the images."""

import re
import sys

import pytest

from everturn_local.images.modules import find_imports
from everturn_local.images.recipes import (
    BROKER,
    EXECUTOR,
    INGRESS,
    RUN_RECIPES,
    SERVICE_RECIPES,
    SUPERVISOR,
    WORKER,
    Recipe,
    load_facts,
    load_inputs,
    load_sources,
)


@pytest.mark.parametrize("recipe", RUN_RECIPES, ids=lambda recipe: recipe.package)
def test_our_files_in_an_image_of_a_run_need_the_standard_library_only(recipe: Recipe):
    files = {name: path for name, path in load_sources(recipe).items() if name.startswith("python/")}
    allowed = sys.stdlib_module_names | {"everturn", recipe.package}

    foreign = {(name, used) for name, path in files.items() for used in find_imports(path.read_text())}

    assert len(files) > 5
    assert {pair for pair in foreign if pair[1].split(".")[0] not in allowed} == set()


def test_neither_image_of_a_run_holds_what_talks_to_an_engine():
    names = [*load_sources(SUPERVISOR), *load_sources(EXECUTOR)]

    assert not [name for name in names if "/broker/" in name or "/bubblewrap/" in name]


def test_the_lock_of_the_libraries_decides_about_the_executor_only():
    assert "requirements.lock" in load_inputs(EXECUTOR)
    assert "requirements.lock" not in load_inputs(SUPERVISOR)
    assert "python/executor/__main__.py" in load_inputs(EXECUTOR)


def test_a_service_image_has_drivers_and_data_but_no_tests():
    names = load_sources(WORKER)

    assert {"python/everturn/turns/postgres_reading.py", "python/chat_proc/models/models.toml"} <= names.keys()
    assert not [name for name in names if "/testing/" in name or "__pycache__" in name or name.endswith(".pyc")]
    assert not [name for name in names if name.startswith(("python/ingress/", "python/exec_supervisor/"))]


def test_the_ingress_carries_the_migrations_and_its_page_decides_about_it():
    assert {"migrations/alembic.ini", "migrations/env.py", "migrations/sql/roles.sql"} <= load_sources(INGRESS).keys()
    assert load_facts(INGRESS).keys() == {"libraries", "page"}
    assert load_facts(WORKER).keys() == {"libraries"}


def test_the_broker_has_no_drivers_and_nothing_that_runs_programs():
    names = load_sources(BROKER)

    assert "python/exec_supervisor/broker/entry.py" in names
    assert not [name for name in names if "/postgres/" in name or "/bubblewrap/" in name or "/pair/" in name]


@pytest.mark.parametrize("recipe", [*RUN_RECIPES, *SERVICE_RECIPES], ids=lambda recipe: recipe.repository)
def test_every_image_has_its_own_user_and_downloads_nothing(recipe: Recipe):
    lines = load_sources(recipe)["Dockerfile"].read_text().splitlines()

    assert [line for line in lines if line.startswith("USER ") and line.split()[1].split(":")[0] not in ("0", "root")]
    assert not [line for line in lines if re.search(r"\b(apt-get|pip install|curl|wget|npm)\b", line)]
