"""Which kind of process is started, and that a wrong name starts none."""

import importlib.util
import subprocess
import sys

import pytest

from exec_supervisor.bootstrap import DEFAULT_MODE, MODES


def start(*arguments: str) -> "subprocess.CompletedProcess[bytes]":
    command = [sys.executable, "-I", "-m", "exec_supervisor", *arguments]
    return subprocess.run(command, input=b"", capture_output=True, check=False, timeout=50)


@pytest.mark.parametrize("arguments", [(), (DEFAULT_MODE,)])
def test_the_default_mode_is_a_supervisor_of_its_worker(arguments):
    done = start(*arguments)

    assert (done.returncode, done.stdout, done.stderr) == (1, b"", b"")


def test_an_unknown_name_starts_nothing_and_lists_the_known_ones():
    done = start("kubernetes")

    assert done.returncode == 2
    assert done.stderr.decode() == f"usage: python -m exec_supervisor [{' | '.join(MODES)}]\n"


@pytest.mark.parametrize("mode", MODES)
def test_each_mode_has_the_folder_or_module_of_its_name(mode):
    """The tests of images rely on it."""
    assert importlib.util.find_spec(f"exec_supervisor.{mode}")


def test_no_kind_is_loaded_before_it_is_chosen():
    loaded = (
        "import sys, exec_supervisor.bootstrap; print([n for n in sys.modules if n.startswith('exec_supervisor.')])"
    )

    done = subprocess.run([sys.executable, "-I", "-c", loaded], capture_output=True, check=True, timeout=50)

    assert done.stdout == b"['exec_supervisor.bootstrap']\n"
