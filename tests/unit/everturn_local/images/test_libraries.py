"""Which libraries fit a base image."""

import subprocess
import sys

import pytest

from everturn_local.images.engine import ImageError
from everturn_local.images.libraries import ASK_PYTHON, BasePython, build_folder_name, build_platform, parse_python


def test_the_base_python_reports_what_selects_wheels():
    printed = subprocess.run([sys.executable, "-I", "-c", ASK_PYTHON], capture_output=True, text=True, check=True)

    assert parse_python(printed.stdout).version == f"{sys.version_info[0]}.{sys.version_info[1]}"


@pytest.mark.parametrize("printed", ["3.12 x86_64\n", "3.12 x86_64 glibc 2.17\n", ""])
def test_a_base_without_wheels_is_refused(printed: str):
    with pytest.raises(ImageError, match=r"glibc 2\.28"):
        parse_python(printed)


def test_each_python_and_lock_has_a_folder_of_its_own():
    one, other = BasePython("3.11", "x86_64", "2.36"), BasePython("3.12", "x86_64", "2.36")

    assert len({build_folder_name(one, "a"), build_folder_name(other, "a"), build_folder_name(one, "b")}) == 3
    assert build_platform(one) == "x86_64-manylinux_2_28"
