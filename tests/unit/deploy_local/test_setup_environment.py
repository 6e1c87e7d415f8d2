"""The setup script: what it decides. That it sets up is shown by every run of the suite from a clean checkout."""

import importlib.util
import re
import sys
import tomllib
from pathlib import Path
from types import ModuleType

import pytest

LOCK = """\
pip==26.3 \\
    --hash=sha256:aa
uv==0.13.8 ; python_version > '3' \\
    --hash=sha256:bb \\
    --hash=sha256:cc
    # via everturn
uvicorn==1.0 \\
    --hash=sha256:dd
"""
PIP = r"""
:env:.find-links='/env/wheels'
global.cert='/etc/ca.crt'
global.extra-index-url='https://one.example/simple\nhttps://two.example/simple'
global.find-links='/opt/wheels'
install.index-url='https://mirror.example/simple'
"""


@pytest.fixture(scope="module")
def setup(request: pytest.FixtureRequest) -> ModuleType:
    path = Path(request.config.rootpath) / "deploy" / "local" / "setup_environment.py"
    spec = importlib.util.spec_from_file_location("setup_environment", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_installer_is_taken_from_the_lock_with_its_hashes(setup: ModuleType):
    entry = setup.build_requirement(LOCK, "uv")

    assert entry.startswith("uv==0.13.8")
    assert "sha256:cc" in entry
    assert "uvicorn" not in entry


def test_a_lock_without_the_installer_says_what_to_do(setup: ModuleType):
    with pytest.raises(setup.SetupError, match="make lock"):
        setup.build_requirement("a==1\n", "uv")


def test_uv_looks_where_pip_looks(setup: ModuleType):
    pip = setup.parse_pip_settings(PIP)

    assert setup.build_uv_settings(pip, {}) == {
        "UV_DEFAULT_INDEX": "https://mirror.example/simple",
        "UV_INDEX": "https://one.example/simple https://two.example/simple",
        "UV_FIND_LINKS": "/env/wheels",
        "SSL_CERT_FILE": "/etc/ca.crt",
    }


def test_existing_uv_settings_are_kept(setup: ModuleType):
    assert "UV_DEFAULT_INDEX" not in setup.build_uv_settings({"index-url": "x"}, {"UV_DEFAULT_INDEX": "y"})


def test_an_old_python_is_refused(setup: ModuleType):
    with pytest.raises(setup.SetupError, match=r"3\.11 or newer"):
        setup.check_version((3, 10))
    setup.check_version(sys.version_info[:2])


def test_a_digest_follows_names_and_contents(setup: ModuleType, tmp_path: Path):
    one, two = tmp_path / "one", tmp_path / "two"
    one.write_text("x")
    two.write_text("x")
    before = setup.build_digest([one])

    assert setup.build_digest([one]) == before
    assert setup.build_digest([two]) != before
    one.write_text("y")
    assert setup.build_digest([one]) != before


@pytest.mark.parametrize("text", [None, "", "{", "7"])
def test_a_stamp_that_is_absent_or_damaged_is_none(setup: ModuleType, tmp_path: Path, text: str | None):
    if text is not None:
        (tmp_path / setup.STAMP).write_text(text)

    assert setup.load_stamp(tmp_path) == {}


def test_every_member_of_the_workspace_is_installed(setup: ModuleType):
    workspace = tomllib.loads((setup.ROOT / "pyproject.toml").read_text())["tool"]["uv"]["workspace"]["members"]
    found = {folder.relative_to(setup.ROOT).as_posix() for pattern in workspace for folder in setup.ROOT.glob(pattern)}

    assert found == set(setup.MEMBERS)


def test_the_locks_name_every_dependency_with_a_hash(setup: ModuleType):
    locked = setup.LOCK.read_text()
    projects = [tomllib.loads((setup.ROOT / member / "pyproject.toml").read_text()) for member in setup.MEMBERS]
    own = {project["project"]["name"] for project in projects}
    wanted = {
        re.split(r"[\[<>=!~; ]", requirement)[0]
        for project in projects
        for requirement in project["project"]["dependencies"]
    }

    missing = [name for name in wanted - own if not re.search(rf"^{name}==\S+ .*\\\n    --hash=", locked, re.MULTILINE)]

    assert missing == []
