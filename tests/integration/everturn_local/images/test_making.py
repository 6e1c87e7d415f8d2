"""`make images`, and what its images are like."""

import dataclasses
import json
import subprocess
from pathlib import Path

import pytest

from everturn_local.images.bases import try_load_base
from everturn_local.images.engine import Engine
from everturn_local.images.making import KEPT, ImageMaker, build_wanted, is_current, run_cache_lock
from everturn_local.images.recipes import CONTENT_LABEL, SUPERVISOR

LOOK = """
import json, os, stat, sys
found = {"uid": os.getuid(), "groups": sorted(os.getgroups()), "setuid": [], "pip": []}
for folder, folders, files in os.walk("/"):
    if folder == "/":
        folders[:] = sorted(set(folders) - {"proc", "sys", "dev"})
    for name in files:
        mode = os.lstat(os.path.join(folder, name)).st_mode
        if stat.S_ISREG(mode) and mode & 0o6000:
            found["setuid"].append(name)
    found["pip"] += [name for name in folders if name in ("pip", "ensurepip", "setuptools")]
status = os.stat("/run/everturn")
found["socket"] = [status.st_uid, status.st_gid, oct(status.st_mode & 0o777)]
print(json.dumps(found))
"""
SCIENCE = """
import matplotlib.pyplot, numpy, openpyxl, pandas, PIL.Image, pptx, pypdf, docx, reportlab.pdfgen.canvas
import executor.runner, glob, importlib.util, sys
print(bool(glob.glob(sys.prefix + "/share/everturn/matplotlib/fontlist*.json")), bool(executor.runner.__cached__))
"""


@pytest.fixture
def maker(engine: Engine, tmp_path: Path) -> ImageMaker:
    return ImageMaker(engine, tmp_path, lambda _: None)


def test_what_is_there_is_not_made_again_and_earlier_ones_are_few(
    engine: Engine, maker: ImageMaker, repository: str, supervisor_image: str
):
    recipe = dataclasses.replace(SUPERVISOR, repository=repository)
    for number in range(KEPT + 2):
        engine.tag_image(supervisor_image, alias=f"{repository}:earlier{number}")

    (name,) = maker.save_images("", [recipe])
    made = engine.try_load_image(name)
    maker.save_images("", [recipe])

    ground = try_load_base(engine, "")
    assert made is not None and ground is not None
    wanted = build_wanted(recipe, ground.id)
    assert made == engine.try_load_image(wanted.name)
    assert made.labels[CONTENT_LABEL] == wanted.content
    assert is_current(recipe, made)
    assert not is_current(dataclasses.replace(recipe, without=("broker",)), made)
    assert len([tag for tag in engine.load_tags(repository) if ":earlier" in tag]) == KEPT
    assert engine.try_load_image(supervisor_image) is not None


def test_the_supervisor_runs_as_a_user_of_its_own_without_an_installer(engine: Engine, supervisor_image: str):
    found = json.loads(engine.run_python(supervisor_image, LOOK))

    assert found == {"uid": 1002, "groups": [1001, 1002], "setuid": [], "pip": [], "socket": [1002, 1001, "0o750"]}


def test_the_executor_runs_as_a_user_of_its_own_without_an_installer(engine: Engine, executor_image: str):
    found = json.loads(engine.run_python(executor_image, LOOK))

    assert found == {"uid": 1001, "groups": [1001], "setuid": [], "pip": [], "socket": [1002, 1001, "0o750"]}


def test_generated_code_finds_its_libraries_without_a_build(engine: Engine, executor_image: str):
    assert engine.run_python(executor_image, SCIENCE).split() == ["True", "True"]


def test_a_second_maker_waits_for_the_first(tmp_path: Path):
    ask = ["flock", "--nonblock", str(tmp_path / "images.lock"), "true"]

    with run_cache_lock(tmp_path):
        assert subprocess.run(ask, check=False).returncode == 1

    assert subprocess.run(ask, check=False).returncode == 0
