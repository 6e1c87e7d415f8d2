"""Chooses the mode of this process. Only its module is imported, because the libraries of the others may be missing."""

import sys
from collections.abc import Callable, Mapping
from typing import Final

DEFAULT_MODE: Final = "bubblewrap"
_NOT_STARTED: Final = 1
_WRONG_USE: Final = 2


def main() -> int:
    """Return the exit code of `python -m exec_supervisor [mode]`."""
    run = MODES.get(sys.argv[1] if len(sys.argv) > 1 else DEFAULT_MODE)
    if run is None:
        sys.stderr.write(f"usage: python -m exec_supervisor [{' | '.join(MODES)}]\n")
        return _WRONG_USE
    return run()


def _run_bubblewrap() -> int:
    from exec_supervisor.bubblewrap import main as run

    return run()


def _run_pair() -> int:
    from exec_supervisor.pair import main as run

    return run()


def _run_combined() -> int:
    from exec_supervisor.combined import main as run

    return run()


def _run_task() -> int:
    from exec_supervisor.task.start import try_start

    started = try_start()
    if started is None:
        return _NOT_STARTED
    # Takes half a second, in which the executor boots.
    from exec_supervisor.task.run import run_task

    return run_task(started)


def _run_broker() -> int:
    from exec_supervisor.broker.entry import main as run

    return run()


MODES: Final[Mapping[str, Callable[[], int]]] = {
    "bubblewrap": _run_bubblewrap,
    "pair": _run_pair,
    "combined": _run_combined,
    "task": _run_task,
    "broker": _run_broker,
}
"""Each mode has the folder or the module of its name, which images of the other modes leave out."""
