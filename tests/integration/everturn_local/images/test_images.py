"""`make images`, and what its images are like."""

import json
import subprocess
from pathlib import Path

from everturn_local.compose.images import run_cache_lock
from everturn_local.images.bases import choose_bases
from everturn_local.images.contents import CONTENT_LABEL, SUPERVISOR, is_current
from everturn_local.images.engine import Engine, FoundImage

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


def test_bases_that_the_operator_names_are_never_replaced(engine: Engine, tmp_path: Path):
    said: list[str] = []

    assert choose_bases(engine, {"PYTHON_BUILD_IMAGE": "localhost:1/absent:none"}, tmp_path, said.append) == {}

    assert said == []


def test_an_image_of_other_sources_is_not_current(engine: Engine, supervisor_image: str):
    found = engine.try_load_image(supervisor_image)

    assert found is not None and found.labels.keys() >= {CONTENT_LABEL}
    assert not is_current(SUPERVISOR, FoundImage(found.id, {CONTENT_LABEL: "other"}))


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
