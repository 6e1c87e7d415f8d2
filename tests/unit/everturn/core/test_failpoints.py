import subprocess
import sys

import pytest

from everturn.core.errors import Invalid
from everturn.core.failpoints import FailpointRaised, Failpoints


def test_a_failpoint_acts_at_its_nth_hit_and_then_no_more() -> None:
    failpoints = Failpoints("here:2:raise")

    failpoints.hit("here")
    with pytest.raises(FailpointRaised):
        failpoints.hit("here")

    failpoints.hit("here")


def test_without_a_setting_failpoints_do_nothing() -> None:
    failpoints = Failpoints()

    failpoints.hit("anywhere")

    assert failpoints is not None


@pytest.mark.parametrize("setting", ["here", "here:0:kill", "here:1:burn", ":1:kill", "here:x:kill"])
def test_a_malformed_setting_is_refused(setting: str) -> None:
    with pytest.raises(Invalid):
        Failpoints(setting)


def test_kill_ends_the_process_at_once() -> None:
    program = "from everturn.core.failpoints import Failpoints as F; F('x:1:kill').hit('x'); print('alive')"

    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=20, check=False)

    assert ended.returncode == -9
    assert ended.stdout == b""
