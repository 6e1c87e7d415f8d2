"""Waiting for a server's process until it answers."""

import time
from collections.abc import Callable
from enum import StrEnum

from everturn_local.processes import Child


class Waited(StrEnum):
    """The result of waiting."""

    ANSWERS = "answers"
    EXITED = "exited"
    SILENT = "silent"


def wait_for_server(process: Child, answers: Callable[[], bool], *, limit_s: float, poll_s: float) -> Waited:
    """Poll until it answers, has exited, or the limit is over."""
    deadline = time.monotonic() + limit_s
    while process.exit_code is None:
        if answers():
            return Waited.ANSWERS
        if time.monotonic() > deadline:
            return Waited.SILENT
        time.sleep(poll_s)
    return Waited.EXITED
