"""Which packages the image holds that builds without a registry."""

import subprocess
import sys

import pytest

from everturn_local.images.engine import ImageError
from everturn_local.images.standins import ASK_PYTHON, BasePython, build_platforms, parse_python, select_entries

LOCK = """\
plain==1.0 \\
    --hash=sha256:aa \\
    --hash=sha256:ab
    # via service
several==1.0 ; python_full_version < '3.12' \\
    --hash=sha256:bb
several==2.0 ; python_full_version >= '3.12' \\
    --hash=sha256:cc
elsewhere==3.0 ; sys_platform == 'win32' \\
    --hash=sha256:dd
"""


def test_a_python_reports_what_decides_which_wheels_fit():
    printed = subprocess.run([sys.executable, "-I", "-c", ASK_PYTHON], capture_output=True, text=True, check=True)

    assert parse_python(printed.stdout).version.startswith(f"{sys.version_info[0]}.{sys.version_info[1]}.")


@pytest.mark.parametrize("printed", ["3.12.1 x86_64\n", "3.12.1 x86_64 glibc 2.17\n", ""])
def test_a_base_without_wheels_is_refused(printed: str):
    with pytest.raises(ImageError, match=r"glibc 2\.28"):
        parse_python(printed)


@pytest.mark.parametrize(("version", "chosen"), [("3.11.9", "several==1.0"), ("3.12.0", "several==2.0")])
def test_the_entries_are_those_for_the_python_of_the_base(version: str, chosen: str):
    selected = select_entries(LOCK, BasePython(version, "x86_64", "2.36"))

    lines = [line.removesuffix(" \\") for line in selected.splitlines() if "==" in line]
    assert lines == ["plain==1.0", chosen]
    assert "--hash=sha256:ab" in selected


def test_wheels_for_an_older_system_fit_and_those_for_a_newer_one_do_not():
    platforms = build_platforms(BasePython("3.12.1", "aarch64", "2.36"))

    assert {"manylinux2014_aarch64", "manylinux_2_17_aarch64", "manylinux_2_36_aarch64"} <= set(platforms)
    assert "manylinux_2_37_aarch64" not in platforms
